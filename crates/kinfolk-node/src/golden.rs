//! What Flower's own classes make of fixed values (`golden/flower.json`), written by 1.41 and the same in 1.40 and 1.42.

use prost::Message;
use std::collections::BTreeMap;

pub struct Golden(serde_json::Value);

impl Golden {
    pub fn read() -> Self {
        Self(serde_json::from_str(include_str!("../golden/flower.json")).unwrap())
    }

    pub fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap()
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        from_hexadecimal(self.text(name))
    }

    pub fn objects(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        let found = self.0[name].as_object().unwrap();
        found.iter().map(|(id, bytes)| (id.clone(), from_hexadecimal(bytes.as_str().unwrap()))).collect()
    }

    /// The message is written as Flower writes it, and read as it was.
    pub fn assert_bytes<M: Message + Default + PartialEq + std::fmt::Debug>(&self, name: &str, message: &M) {
        assert_eq!(message.encode_to_vec(), self.bytes(name), "{name}: {message:?}");
        assert_eq!(&M::decode(&*self.bytes(name)).unwrap(), message, "{name}");
    }
}

fn from_hexadecimal(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}
