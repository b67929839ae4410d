//! Clients' rows on a device: every storage that they share is sent once.

use crate::device::{Buffer, Device};
use crate::program::Stored;
use kinfolk::data::{Features, Targets};
use kinfolk::{Client, Error, ErrorKind, Result, Shard};
use std::collections::HashMap;
use std::sync::Arc;

/// Features and targets that lie side by side.
type Storage = (*const Features, *const Targets);

/// Rows on a device.
pub(crate) struct Rows {
    features: Buffer,
    classes: Buffer,
    values: Buffer,
    stored: Stored,
    /// Of every storage the place of its first row; the storages themselves, so that their addresses stay theirs.
    begins: HashMap<Storage, u32>,
    _held: Vec<Shard>,
}

// SAFETY: the addresses of storages are compared, and never followed.
unsafe impl Send for Rows {}

impl Rows {
    /// Sends all rows that clients train on or are scored on.
    pub(crate) fn new(device: &Arc<Device>, clients: &[Client]) -> Result<Self> {
        let mut begins: HashMap<Storage, u32> = HashMap::new();
        let mut held: Vec<Shard> = Vec::new();
        let mut rows = 0usize;
        for shard in clients.iter().flat_map(|client| [&client.train, &client.test]).filter(|shard| !shard.is_empty()) {
            begins.entry(storage(shard)).or_insert_with(|| {
                let begin = rows as u32;
                rows += all(shard);
                held.push(shard.clone());
                begin
            });
        }
        if rows >= 1 << 31 {
            return Err(Error::new(ErrorKind::Unsupported, format!("device: {rows} rows, want fewer than 2^31")));
        }
        let are_bytes = held.iter().all(|shard| matches!(**shard.features(), Features::Bytes { .. }));
        let stored = if are_bytes { Stored::Bytes } else { Stored::Numbers };
        let columns = held.first().map_or(0, Shard::columns);
        let bytes = rows * (columns * if are_bytes { 1 } else { 4 } + 4);
        let free = device.free_memory()?;
        if bytes + (8 << 30) > free {
            let (bytes, free) = (bytes >> 20, free >> 20);
            let message = format!("device: {bytes} MiB for rows and 8192 MiB to work in wanted, {free} MiB are free");
            return Err(Error::new(ErrorKind::Unsupported, message).hint("use device = \"cpu\", or fewer rows"));
        }
        let features = match stored {
            Stored::Bytes => {
                let mut values: Vec<u8> = Vec::with_capacity(rows * columns);
                for shard in &held {
                    if let Features::Bytes { values: own, .. } = &**shard.features() {
                        values.extend_from_slice(own);
                    }
                }
                device.upload(&values)?
            }
            Stored::Numbers => {
                let mut values: Vec<f32> = Vec::with_capacity(rows * columns);
                for shard in &held {
                    match &**shard.features() {
                        Features::Bytes { values: own, .. } => {
                            values.extend(own.iter().map(|&value| f32::from(value) * (1.0 / 255.0)));
                        }
                        Features::F32 { values: own, .. } => values.extend_from_slice(own),
                        Features::F64 { values: own, .. } => values.extend(own.iter().map(|&value| value as f32)),
                        _ => return Err(Error::new(ErrorKind::Unsupported, "device: rows that are no numbers")),
                    }
                }
                device.upload(&values)?
            }
        };
        let (mut classes, mut values): (Vec<u32>, Vec<f32>) = (Vec::new(), Vec::new());
        for shard in &held {
            match &**shard.targets() {
                Targets::Classes(own) => classes.extend_from_slice(own),
                Targets::Values(own) => values.extend(own.iter().map(|&value| value as f32)),
                _ => return Err(Error::new(ErrorKind::Unsupported, "device: rows without targets")),
            }
        }
        let (classes, values) = (device.upload(&classes)?, device.upload(&values)?);
        device.wait()?;
        Ok(Self { features, classes, values, stored, begins, _held: held })
    }

    pub(crate) fn stored(&self) -> Stored {
        self.stored
    }

    pub(crate) fn addresses(&self) -> (u64, u64, u64) {
        (self.features.address, self.classes.address, self.values.address)
    }

    /// Where the first row of a shard's storage is, if it is there.
    pub(crate) fn begin(&self, shard: &Shard) -> Option<u32> {
        self.begins.get(&storage(shard)).copied()
    }

    /// Where the rows of a shard are, if they are there.
    pub(crate) fn of(&self, shard: &Shard) -> Option<Vec<u32>> {
        if shard.is_empty() {
            return Some(Vec::new());
        }
        let begin = self.begin(shard)?;
        Some(shard.rows().map(|row| begin + row as u32).collect())
    }
}

fn storage(shard: &Shard) -> Storage {
    (Arc::as_ptr(shard.features()), Arc::as_ptr(shard.targets()))
}

/// Rows of the whole storage of a shard.
fn all(shard: &Shard) -> usize {
    let values = match &**shard.features() {
        Features::Bytes { values, .. } => values.len(),
        Features::F32 { values, .. } => values.len(),
        Features::F64 { values, .. } => values.len(),
        _ => 0,
    };
    values / shard.columns().max(1)
}
