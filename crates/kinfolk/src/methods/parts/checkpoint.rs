//! A method's state as bytes, for checkpoints.

use crate::error::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub fn restore<S: DeserializeOwned>(bytes: &[u8]) -> Result<S> {
    postcard::from_bytes(bytes)
        .map_err(|error| Error::new(ErrorKind::Io, format!("a checkpoint could not be read: {error}")))
}

pub fn save<S: Serialize>(state: &S) -> Result<Vec<u8>> {
    postcard::to_stdvec(state)
        .map_err(|error| Error::new(ErrorKind::Io, format!("a checkpoint could not be written: {error}")))
}

/// `save` and `restore` of a method whose variables are all in one field, `state` unless another is named.
macro_rules! keep_state {
    ($field:ident) => {
        fn save(&self) -> Result<Option<Vec<u8>>> {
            save(&self.$field).map(Some)
        }

        fn restore(&mut self, bytes: &[u8]) -> Result<()> {
            self.$field = restore(bytes)?;
            Ok(())
        }
    };
    () => {
        keep_state!(state);
    };
}
pub(in crate::methods) use keep_state;
