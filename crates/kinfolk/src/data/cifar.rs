//! The binary version of CIFAR-10: records of one label byte and 3072 pixels (red, green and blue planes of 32x32).

use super::*;

const SIDE: usize = 32;
const CHANNELS: usize = 3;
const CLASSES: usize = 10;
const RECORD: usize = 1 + CHANNELS * SIDE * SIDE;
const TRAIN: [&str; 5] =
    ["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"];
const TEST: [&str; 1] = ["test_batch.bin"];

/// Reads the six files of a folder.
pub fn read(folder: &Path) -> Result<Pools> {
    Ok(Pools { train: join(folder, &TRAIN)?, test: join(folder, &TEST)?, classes: CLASSES })
}

fn join(folder: &Path, names: &[&str]) -> Result<Images> {
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for name in names {
        let path = folder.join(name);
        let bytes = fs::read(&path).map_err(|error| Error::io("reading", &path, error))?;
        if bytes.is_empty() || bytes.len() % RECORD != 0 {
            let message = format!(
                "{}: {} bytes, want a multiple of {RECORD}, the size of one image",
                path.display(),
                bytes.len()
            );
            return Err(Error::data(message).hint("the file is incomplete: delete it and fetch it again"));
        }
        for record in bytes.chunks_exact(RECORD) {
            labels.push(record[0]);
            pixels.extend_from_slice(&record[1..]);
        }
    }
    Images::new(&folder.display().to_string(), CHANNELS, SIDE, pixels, labels, CLASSES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_taken_apart() {
        let folder = tempfile::tempdir().unwrap();
        for (number, name) in TRAIN.iter().chain(&TEST).enumerate() {
            let mut record = vec![number as u8];
            record.extend((0..RECORD - 1).map(|i| (i % 251) as u8));
            fs::write(folder.path().join(name), record).unwrap();
        }
        let pools = read(folder.path()).unwrap();
        assert_eq!(pools.train.labels(), [0, 1, 2, 3, 4]);
        assert_eq!(pools.test.labels(), [5]);
        assert_eq!(pools.train.pixels(4)[252], 1);

        fs::write(folder.path().join(TEST[0]), [1; 100]).unwrap();
        let text = read(folder.path()).unwrap_err().to_string();
        assert!(text.contains("test_batch.bin: 100 bytes, want a multiple of 3073"), "{text}");
        let mut record = vec![10];
        record.resize(RECORD, 0);
        fs::write(folder.path().join(TEST[0]), record).unwrap();
        let text = read(folder.path()).unwrap_err().to_string();
        assert!(text.contains("image 0 has label 10, want 0 to 9"), "{text}");
    }
}
