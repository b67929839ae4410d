//! Datasets are downloaded: to a `.part` file, on where a connection was cut, checked against a known digest, and only then does
//! a file take its name. Digests are of the content, not of the compressed bytes, so recompressed copies pass too.

use super::cache::{Content, Dataset, Progress, packed};
use super::*;
use flate2::read::GzDecoder;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, Write};
use std::time::Duration;
use ureq::http::{StatusCode, header};

/// Upper bound on the connections of one download.
const ATTEMPTS: usize = 50;

/// Downloads missing and broken files of a dataset from these places into this folder.
pub(super) fn get_from(dataset: &Dataset, places: &[&str], folder: &Path, progress: Progress) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| Error::io("making", folder, error))?;
    let is_sound = |file: &Content| {
        // A broken plain file would be read in place of a sound packed one, so it decides alone.
        let plain = folder.join(file.name);
        let path = if plain.exists() || dataset.archive.is_some() { plain } else { packed(folder, file) };
        path.is_file() && digest(&path, file.bytes).is_ok_and(|digest| digest == file.sha256)
    };
    let broken: Vec<&Content> = dataset.files.iter().filter(|file| !is_sound(file)).collect();
    let Some(archive) = dataset.archive else {
        for file in broken {
            let target = packed(folder, file);
            let wanted = (&*format!("{}.gz", file.name), most_packed(&[*file]));
            fetch(places, wanted, folder, progress, &mut |part| {
                compare(&part.display().to_string(), &digest(part, file.bytes)?, file)?;
                rename(part, &target)
            })?;
            remove(&folder.join(file.name))?;
        }
        return Ok(());
    };
    if broken.is_empty() {
        return Ok(());
    }
    fetch(places, (archive, most_packed(dataset.files)), folder, progress, &mut |part| {
        unpack(part, dataset, folder)?;
        remove(part)
    })
}

/// Downloads a file of limited size from the first place that delivers it; `accept` checks it and puts it in place.
fn fetch(
    places: &[&str],
    (name, most): (&str, u64),
    folder: &Path,
    progress: Progress,
    accept: &mut dyn FnMut(&Path) -> Result<()>,
) -> Result<()> {
    let part = folder.join(format!("{name}.part"));
    let mut last = Error::data(format!("{name}: no place to download it from"));
    for place in places {
        let address = format!("{place}{name}");
        match download(&address, (name, most), &part, progress) {
            Ok(()) => match accept(&part) {
                Ok(()) => return Ok(()),
                Err(fault) => {
                    remove(&part)?;
                    last = fault.at(&address).hint("the download was thrown away: try again");
                }
            },
            Err(fault) if fault.kind() == ErrorKind::Data => last = fault,
            Err(fault) => last = fault.hint("what has arrived is kept: the same command goes on from there"),
        }
    }
    Err(last)
}

/// Upper bound on the size of these files when packed: incompressible data grows by less.
fn most_packed(files: &[Content]) -> u64 {
    let bytes: u64 = files.iter().map(|file| file.bytes).sum();
    bytes + bytes / 50 + (1 << 20)
}

/// Downloads until the file is complete, resuming cut connections as long as every attempt brings something.
fn download(address: &str, wanted: (&str, u64), part: &Path, progress: Progress) -> Result<()> {
    let size = || fs::metadata(part).map_or(0, |found| found.len());
    let mut attempts = 0;
    loop {
        let before = size();
        attempts += 1;
        match attempt(address, wanted, part, before, progress) {
            Err(error) if error.kind() == ErrorKind::Io && size() != before && attempts < ATTEMPTS => {}
            result => return result,
        }
    }
}

fn attempt(address: &str, (name, most): (&str, u64), part: &Path, have: u64, progress: Progress) -> Result<()> {
    let failed = |what: String| Error::new(ErrorKind::Io, format!("downloading {address}: {what}"));
    let wait = Some(Duration::from_secs(60));
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_connect(wait)
        .timeout_recv_response(wait)
        .timeout_per_read(wait)
        .build()
        .new_agent();
    // Without this a server may compress on the fly, and sizes and offsets would be of something else.
    let mut request = agent.get(address).header(header::ACCEPT_ENCODING, "identity");
    if have > 0 {
        request = request.header(header::RANGE, format!("bytes={have}-"));
    }
    let mut response = request.call().map_err(|error| failed(error.to_string()))?;
    let continues = response
        .headers()
        .get(header::CONTENT_RANGE)
        .and_then(|range| range.to_str().ok())
        .is_some_and(|range| range.starts_with(&format!("bytes {have}-")));
    let writing = |error| Error::io("writing", part, error);
    let mut file = OpenOptions::new().create(true).append(true).open(part).map_err(writing)?;
    let mut done = match response.status() {
        StatusCode::PARTIAL_CONTENT if continues => have,
        StatusCode::OK => {
            file.set_len(0).map_err(writing)?;
            0
        }
        // The part is longer than the file: it belongs to something else.
        StatusCode::RANGE_NOT_SATISFIABLE => {
            file.set_len(0).map_err(writing)?;
            return Err(failed("the server has no more than is here already".into()));
        }
        status => return Err(failed(format!("the server answered {status}"))),
    };
    let total = response.body().content_length().map(|length| done.saturating_add(length));
    let too_large = |found: u64| {
        // The part belongs to another file.
        OpenOptions::new().write(true).truncate(true).open(part).map_err(writing)?;
        Err(Error::data(format!("downloading {address}: got {found} bytes, want at most {most}")))
    };
    if let Some(total) = total.filter(|total| *total > most) {
        return too_large(total);
    }
    progress(name, done, total);
    let mut reader = response.body_mut().as_reader();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) => return Err(failed(format!("cut off after {done} bytes: {error}"))),
        };
        done += count as u64;
        if done > most {
            return too_large(done);
        }
        file.write_all(&buffer[..count]).map_err(writing)?;
        progress(name, done, total);
    }
    match total {
        Some(total) if done < total => Err(failed(format!("cut off after {done} of {total} bytes"))),
        _ => file.sync_all().map_err(writing),
    }
}

/// Takes the dataset's files out of the archive; none takes its name before all have checked out.
fn unpack(archive: &Path, dataset: &Dataset, folder: &Path) -> Result<()> {
    let reading = |error| Error::io("unpacking", archive, error);
    let file = File::open(archive).map_err(reading)?;
    let mut wanted: HashMap<&str, &Content> = dataset.files.iter().map(|file| (file.name, file)).collect();
    let mut ready = Vec::new();
    for entry in tar::Archive::new(GzDecoder::new(BufReader::new(file))).entries().map_err(reading)? {
        let entry = entry.map_err(reading)?;
        let path = entry.path().map_err(reading)?.into_owned();
        let Some(file) = path.file_name().and_then(|name| name.to_str()).and_then(|name| wanted.remove(name)) else {
            continue;
        };
        let part = folder.join(format!("{}.part", file.name));
        let mut into = File::create(&part).map_err(|error| Error::io("writing", &part, error))?;
        io::copy(&mut entry.take(file.bytes + 1), &mut into).map_err(|error| Error::io("writing", &part, error))?;
        compare(file.name, &digest(&part, file.bytes)?, file).inspect_err(|_| drop(fs::remove_file(&part)))?;
        ready.push((part, folder.join(file.name)));
    }
    if let Some(name) = wanted.keys().min() {
        return Err(Error::data(format!("{} is not in the archive", name)));
    }
    ready.iter().try_for_each(|(part, target)| rename(part, target))
}

fn compare(place: &str, found: &str, file: &Content) -> Result<()> {
    if found == file.sha256 {
        return Ok(());
    }
    Err(Error::data(format!("{place}: the content has SHA-256 {found}, want {}", file.sha256)))
}

/// The SHA-256 of a file's content, unpacked if it is gzipped, cut off after one byte more than it should have.
fn digest(path: &Path, bytes: u64) -> Result<String> {
    let reading = |error| Error::io("reading", path, error);
    let mut file = BufReader::new(File::open(path).map_err(reading)?);
    let mut magic = Vec::new();
    file.by_ref().take(2).read_to_end(&mut magic).map_err(reading)?;
    file.rewind().map_err(reading)?;
    let content: Box<dyn Read> = if magic == [0x1f, 0x8b] { Box::new(GzDecoder::new(file)) } else { Box::new(file) };
    let mut content = content.take(bytes.saturating_add(1));
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match content.read(&mut buffer).map_err(reading)? {
            0 => break,
            count => hash.update(&buffer[..count]),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| Error::io("renaming to", to, error))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("removing", path, error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::cache::{content, missing};
    use crate::data::idx::tests::gzip;
    use std::io::BufRead;
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};
    use std::thread;

    const NUMBERS: &str = "ab6c5f3237f551d208fc2ca5225a4cca20b3fd638794a804f0ed5549d5041734";
    const PLAIN: Dataset = Dataset {
        name: "plain",
        summary: "",
        places: &["http://nowhere/"],
        archive: None,
        files: &[content("numbers", 1000, NUMBERS)],
    };
    const PACKED: Dataset = Dataset { name: "packed", archive: Some("numbers.tar.gz"), ..PLAIN };

    fn numbers() -> Vec<u8> {
        b"0123456789".repeat(100)
    }

    /// A server that hands out one body, cutting the connection after so many bytes in each of its first answers.
    struct Server {
        address: String,
        ranges: Arc<Mutex<Vec<Option<usize>>>>,
    }

    impl Server {
        fn start(body: Vec<u8>, cuts: Vec<usize>) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = format!("http://{}/", listener.local_addr().unwrap());
            let ranges = Arc::new(Mutex::new(Vec::new()));
            let seen = ranges.clone();
            thread::spawn(move || {
                let mut cuts = cuts.into_iter();
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    let mut from = None;
                    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                        let line = line.unwrap().to_lowercase();
                        if let Some(range) = line.strip_prefix("range: bytes=") {
                            from = range.trim_end_matches('-').parse().ok();
                        }
                        if line.is_empty() {
                            break;
                        }
                    }
                    seen.lock().unwrap().push(from);
                    let start = from.unwrap_or(0);
                    let head = if start > body.len() {
                        "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n".to_string()
                    } else {
                        let status = if from.is_some() { "206 Partial Content" } else { "200 OK" };
                        let (last, size) = (body.len() - 1, body.len());
                        format!(
                            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Range: bytes {start}-{last}/{size}\r\n\
                             Connection: close\r\n\r\n",
                            size - start
                        )
                    };
                    stream.write_all(head.as_bytes()).unwrap();
                    let rest = body.get(start..).unwrap_or_default();
                    let end = cuts.next().unwrap_or(rest.len()).min(rest.len());
                    stream.write_all(&rest[..end]).unwrap();
                }
            });
            Self { address, ranges }
        }

        fn ranges(&self) -> Vec<Option<usize>> {
            self.ranges.lock().unwrap().clone()
        }
    }

    fn get_quietly(dataset: &Dataset, places: &[&str], folder: &Path) -> Result<()> {
        get_from(dataset, places, folder, &mut |_, _, _| {})
    }

    #[test]
    fn a_download_is_checked_and_left_alone_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let body = gzip(&numbers());
        let server = Server::start(body.clone(), vec![]);
        let mut seen = Vec::new();
        let mut progress = |name: &str, done: u64, total: Option<u64>| seen.push((name.to_string(), done, total));
        get_from(&PLAIN, &[&server.address], folder.path(), &mut progress).unwrap();
        let size = body.len() as u64;
        assert_eq!(seen.first(), Some(&("numbers.gz".to_string(), 0, Some(size))));
        assert_eq!(seen.last(), Some(&("numbers.gz".to_string(), size, Some(size))));
        assert_eq!(fs::read(folder.path().join("numbers.gz")).unwrap(), body);
        assert!(missing(&PLAIN, folder.path()).is_empty());
        get_quietly(&PLAIN, &[&server.address], folder.path()).unwrap();
        assert_eq!(server.ranges(), [None]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_cut_download_goes_on_where_it_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(gzip(&numbers()), vec![10, 5]);
        get_quietly(&PLAIN, &[&server.address], folder.path()).unwrap();
        assert_eq!(server.ranges(), [None, Some(10), Some(15)]);
    }

    #[test]
    fn a_part_of_an_earlier_run_is_used_and_a_foreign_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let body = gzip(&numbers());
        let server = Server::start(body.clone(), vec![]);
        fs::write(folder.path().join("numbers.gz.part"), &body[..7]).unwrap();
        get_quietly(&PLAIN, &[&server.address], folder.path()).unwrap();
        fs::write(folder.path().join("numbers.gz"), "broken").unwrap();
        fs::write(folder.path().join("numbers.gz.part"), vec![0; 5000]).unwrap();
        get_quietly(&PLAIN, &[&server.address], folder.path()).unwrap();
        assert_eq!(server.ranges(), [Some(7), Some(5000), None]);
    }

    #[test]
    fn nothing_arriving_is_an_error_that_keeps_the_part() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(gzip(&numbers()), vec![10, 0]);
        let text = get_quietly(&PLAIN, &[&server.address], folder.path()).unwrap_err().to_string();
        assert!(text.contains("cut off after 10") && text.contains("goes on from there"), "{text}");
        assert_eq!(fs::metadata(folder.path().join("numbers.gz.part")).unwrap().len(), 10);
    }

    #[test]
    fn wrong_content_is_thrown_away_and_the_next_place_tried() {
        let folder = tempfile::tempdir().unwrap();
        let wrong = Server::start(gzip(b"something else"), vec![]);
        let text = get_quietly(&PLAIN, &[&wrong.address], folder.path()).unwrap_err().to_string();
        assert!(text.contains(&format!("want {NUMBERS}")), "{text}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let right = Server::start(gzip(&numbers()), vec![]);
        get_quietly(&PLAIN, &[&wrong.address, &right.address], folder.path()).unwrap();
        assert!(missing(&PLAIN, folder.path()).is_empty());
    }

    #[test]
    fn a_download_stops_at_the_known_size() {
        let most = most_packed(PLAIN.files);
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join("numbers.gz.part");
        // A server that says how much it sends.
        let large = Server::start(vec![7; most as usize + 1], vec![]);
        let text = get_quietly(&PLAIN, &[&large.address], folder.path()).unwrap_err().to_string();
        assert!(text.contains(&format!("got {} bytes, want at most {most}", most + 1)), "{text}");
        assert_eq!((large.ranges().len(), fs::metadata(&part).unwrap().len()), (1, 0));
        // One that does not, and never ends.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").unwrap();
            while stream.write_all(&[7; 1 << 16]).is_ok() {}
        });
        let text = get_quietly(&PLAIN, &[&address], folder.path()).unwrap_err().to_string();
        assert!(text.contains(&format!("want at most {most}")), "{text}");
        assert_eq!(fs::metadata(&part).unwrap().len(), 0);
    }

    #[test]
    fn a_small_file_that_unpacks_without_end_is_not_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let bomb = folder.path().join("numbers.gz");
        fs::write(&bomb, gzip(&vec![0; 20_000_000])).unwrap();
        let first =
            |bytes: usize| Sha256::digest(vec![0; bytes]).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(digest(&bomb, 1000).unwrap(), first(1001));
    }

    #[test]
    fn a_broken_plain_file_gives_way_to_the_download() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(gzip(&numbers()), vec![]);
        fs::write(folder.path().join("numbers"), "broken").unwrap();
        get_quietly(&PLAIN, &[&server.address], folder.path()).unwrap();
        assert!(!folder.path().join("numbers").exists() && folder.path().join("numbers.gz").exists());
        fs::write(folder.path().join("numbers"), numbers()).unwrap();
        fs::remove_file(folder.path().join("numbers.gz")).unwrap();
        get_quietly(&PLAIN, &[&server.address], folder.path()).unwrap();
        assert_eq!(server.ranges().len(), 1);
    }

    #[test]
    fn archives_are_unpacked_by_file_name() {
        let archive = |name: &str, content: &[u8]| {
            let mut builder = tar::Builder::new(Vec::new());
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_cksum();
            builder.append_data(&mut header, name, content).unwrap();
            gzip(&builder.into_inner().unwrap())
        };
        let folder = tempfile::tempdir().unwrap();
        let text = |body: Vec<u8>| {
            let server = Server::start(body, vec![]);
            get_quietly(&PACKED, &[&server.address], folder.path()).map_err(|error| error.to_string())
        };
        assert!(text(archive("batches/other", b"x")).unwrap_err().contains("numbers is not in the archive"));
        assert!(text(archive("numbers", b"wrong")).unwrap_err().contains("SHA-256"));
        assert!(text(b"no archive".to_vec()).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        text(archive("batches/numbers", &numbers())).unwrap();
        assert_eq!(fs::read(folder.path().join("numbers")).unwrap(), numbers());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
