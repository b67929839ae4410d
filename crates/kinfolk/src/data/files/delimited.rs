//! Text files with a delimiter: comma, semicolon or tab, whichever the first lines have. They may be compressed by gzip. Cells
//! that are not UTF-8 are read as Windows-1252, of which Latin-1 is a part.

use super::batch::{Batch, Batches, ROWS, Strip, Texts, Want};
use super::lines::Counted;
use super::notation::Reading;
use super::{Header, is_missing};
use crate::error::{Error, Result};
use csv::{ByteRecord, ErrorKind, Position, Reader, ReaderBuilder};
use flate2::bufread::MultiGzDecoder;
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

/// Bytes from which the delimiter is found.
const BEGINNING: usize = 1 << 16;
/// Bytes read at once.
const BUFFER: usize = 1 << 17;

/// A text file whose delimiter and names of columns are known.
pub(super) struct Delimited {
    path: PathBuf,
    delimiter: u8,
    has_names: bool,
    pub names: Vec<String>,
}

type Text = Box<dyn Read>;

fn open(path: &Path) -> Result<Text> {
    let io = |error| Error::io("reading", path, error);
    if path.is_dir() {
        return Err(Error::data(format!("{}: a folder, want a file", path.display())));
    }
    let mut file = File::open(path).map_err(io)?;
    let mut first = Vec::new();
    file.by_ref().take(2).read_to_end(&mut first).map_err(io)?;
    file.rewind().map_err(io)?;
    let is_packed = first == [0x1f, 0x8b];
    Ok(if is_packed { Box::new(MultiGzDecoder::new(BufReader::new(file))) } else { Box::new(file) })
}

fn records<R: Read>(text: R, delimiter: u8, has_names: bool) -> Reader<Counted<R>> {
    let mut builder = ReaderBuilder::new();
    builder.delimiter(delimiter).has_headers(has_names).buffer_capacity(BUFFER);
    builder.from_reader(Counted::new(text))
}

impl Delimited {
    /// Looks at the first lines. The file's ending decides where both commas and tabs are possible.
    pub fn new(path: &Path, header: Header) -> Result<Self> {
        let mut beginning = Vec::new();
        let text = open(path)?.take(BEGINNING as u64).read_to_end(&mut beginning);
        text.map_err(|error| unread(path, error))?;
        check_text(path, &beginning)?;
        let is_tsv = path.to_string_lossy().to_lowercase().trim_end_matches(".gz").ends_with(".tsv");
        let delimiter = find_delimiter(&beginning, if is_tsv { b'\t' } else { b',' });
        let mut first = ByteRecord::new();
        let mut reader = records(open(path)?, delimiter, false);
        let found = reader.read_byte_record(&mut first);
        found.map_err(|error| broken(path, error, &mut reader))?;
        let cells: Vec<Cow<str>> = first.iter().map(decode).collect();
        let line = reader.get_mut().line_at(first.position().map_or(0, Position::byte));
        let place = || format!("{} row {line}", path.display());
        let has_names = header == Header::Always || has_names(&cells).map_err(|error| error.at(place()))?;
        let name =
            |(index, cell): (usize, &Cow<str>)| if has_names { cell.to_string() } else { (index + 1).to_string() };
        let names = cells.iter().enumerate().map(name).collect();
        Ok(Self { path: path.to_path_buf(), delimiter, has_names, names })
    }

    pub fn rows(&self, wants: &[Want]) -> Result<Rows> {
        let reader = records(open(&self.path)?, self.delimiter, self.has_names);
        Ok(Rows { path: self.path.clone(), reader, wants: wants.to_vec(), foreign: None })
    }
}

/// The rows of a text file.
pub(super) struct Rows {
    path: PathBuf,
    reader: Reader<Counted<Text>>,
    wants: Vec<Want>,
    /// The first line with cells that are not UTF-8.
    foreign: Option<u64>,
}

impl Batches for Rows {
    fn next(&mut self) -> Result<Option<Batch>> {
        let mut lines = Vec::with_capacity(ROWS);
        let mut texts = vec![Texts::default(); self.wants.len()];
        let mut record = ByteRecord::new();
        while lines.len() < ROWS {
            let found = self.reader.read_byte_record(&mut record);
            if !found.map_err(|error| broken(&self.path, error, &mut self.reader))? {
                break;
            }
            let line = self.reader.get_mut().line_at(record.position().map_or(0, Position::byte));
            for ((cell, texts), want) in record.iter().zip(&mut texts).zip(&self.wants) {
                if *want != Want::Nothing {
                    let cell = decode(cell);
                    if matches!(cell, Cow::Owned(_)) {
                        self.foreign.get_or_insert(line);
                    }
                    texts.push(&cell);
                }
            }
            lines.push(line);
        }
        let strip =
            |(texts, want): (Texts, &Want)| if *want == Want::Nothing { Strip::Nothing } else { Strip::Texts(texts) };
        let columns = texts.into_iter().zip(&self.wants).map(strip).collect();
        Ok((!lines.is_empty()).then_some(Batch { lines, columns }))
    }

    fn remarks(&self) -> Vec<String> {
        let remark =
            |line| format!("{} row {line}: not UTF-8; such cells are read as Windows-1252", self.path.display());
        self.foreign.map(remark).into_iter().collect()
    }
}

fn unread(path: &Path, error: std::io::Error) -> Error {
    let is_cut = error.kind() == std::io::ErrorKind::UnexpectedEof;
    let error = Error::io("reading", path, error);
    if is_cut { error.hint("the file ends too early: copy or download it again") } else { error }
}

fn broken<R: Read>(path: &Path, error: csv::Error, reader: &mut Reader<Counted<R>>) -> Error {
    match error.into_kind() {
        ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let line = reader.get_mut().line_at(pos.as_ref().map_or(0, Position::byte));
            let cells = if len == 1 { "1 cell".to_string() } else { format!("{len} cells") };
            let hint = match len > expected_len {
                true => "quote cells that contain the separator; the first row of the file names all columns",
                false => "quote cells that contain the separator",
            };
            Error::data(format!("{} row {line}: {cells}, want {expected_len}", path.display())).hint(hint)
        }
        ErrorKind::Io(error) => unread(path, error),
        _ => Error::data(format!("{}: not a table with a delimiter", path.display())),
    }
}

/// Refuses what is no text, whatever its name says.
fn check_text(path: &Path, beginning: &[u8]) -> Result<()> {
    let refuse = |found: &str| {
        let message = format!("{}: {found}, want a text with commas, semicolons or tabs", path.display());
        Err(Error::data(message).hint("save the table as CSV (UTF-8)"))
    };
    match beginning {
        [b'P', b'K', 3, 4, ..] => refuse("a workbook or an archive"),
        [0xd0, 0xcf, 0x11, 0xe0, ..] => refuse("a workbook"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => refuse("UTF-16"),
        [b'P', b'A', b'R', b'1', ..] => refuse("a Parquet file"),
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] => refuse("an Arrow file"),
        _ if beginning.contains(&0) => refuse("no text"),
        _ => Ok(()),
    }
}

const DELIMITERS: [u8; 3] = [b',', b';', b'\t'];

/// The delimiter with which most rows have as many cells as the first, then the one that leaves the others in fewest cells,
/// then the one with most cells; `usual` where none divides the first row.
fn find_delimiter(beginning: &[u8], usual: u8) -> u8 {
    let is_cut = beginning.len() == BEGINNING;
    let score = |delimiter: u8| {
        let mut builder = ReaderBuilder::new();
        let mut reader = builder.delimiter(delimiter).has_headers(false).flexible(true).from_reader(beginning);
        let mut rows: Vec<ByteRecord> = reader.byte_records().flatten().collect();
        if is_cut && rows.len() > 1 {
            rows.pop();
        }
        let first = rows.first()?.len();
        let like_first = rows.iter().filter(|row| row.len() == first).count();
        let cells = || rows.iter().flat_map(ByteRecord::iter);
        let whole = cells().filter(|cell| is_whole(cell, delimiter)).count();
        // In parts of a thousand: one broken row among many is not what tells delimiters apart.
        let shares = (like_first * 1000 / rows.len(), whole * 1000 / cells().count().max(1));
        (first > 1).then_some((shares, first, delimiter == usual))
    };
    let scored = DELIMITERS.into_iter().filter_map(|delimiter| Some((score(delimiter)?, delimiter)));
    scored.max_by_key(|(score, _)| *score).map_or(usual, |(_, delimiter)| delimiter)
}

/// Whether a cell has no other delimiter in it, but for a decimal comma.
fn is_whole(cell: &[u8], delimiter: u8) -> bool {
    let is_decimal = |place: usize| cell[place] == b',' && cell.get(place + 1).is_some_and(u8::is_ascii_digit);
    let is_other = |(place, byte): (usize, &u8)| *byte != delimiter && DELIMITERS.contains(byte) && !is_decimal(place);
    !cell.iter().enumerate().any(is_other)
}

/// Whether the first row names the columns. A point taken for names would be lost silently.
fn has_names(first: &[Cow<str>]) -> Result<bool> {
    let word = first.iter().find(|cell| !is_missing(cell) && Reading::of(cell).is_none());
    match (word, first.iter().find(|cell| Reading::of(cell).is_some())) {
        (Some(word), Some(number)) => Err(Error::data(format!(
            "`{word}` is a word and `{number}` a number, want the names of all columns or a point"
        ))
        .hint("begin the file with a row of names, none of them a number")),
        (word, _) => Ok(word.is_some()),
    }
}

/// The text of a cell, without blanks around it.
fn decode(cell: &[u8]) -> Cow<'_, str> {
    let cell = cell.trim_ascii();
    /// What Windows-1252 has where Latin-1 has control characters; those it leaves open stay as they are.
    const WINDOWS: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘',
        '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
    ];
    let letter = |byte: &u8| match byte {
        0x80..=0x9f => WINDOWS[usize::from(byte - 0x80)],
        other => char::from(*other),
    };
    match std::str::from_utf8(cell) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(cell.iter().map(letter).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delimiter_is_found_from_the_first_lines() {
        for (text, wanted) in [
            ("a,b\n1,2\n", b','),
            ("a;b\n1,5;2,5\n3,0;4\n", b';'),
            ("a\tb;c\n1\t2\n3\t4\n", b'\t'),
            ("\"a;b\",c\n\"1;2\",3\n", b','),
            ("name;text\nx;\"a, b, c\"\ny;\"d; e\"\n", b';'),
            ("one\n1\n", b','),
            ("a,b;c\n1,2;3\n4,5;6\n", b';'),
            ("0,5;2,5\n1,5;3,5\n", b';'),
            ("a,b,c\n1,x; y,3\n", b','),
        ] {
            assert_eq!(find_delimiter(text.as_bytes(), b',') as char, wanted as char, "{text}");
        }
    }

    #[test]
    fn cells_that_are_not_utf8_are_windows_1252() {
        assert_eq!(decode("Zürich".as_bytes()), "Zürich");
        assert_eq!(decode(b"Z\xfcrich"), "Zürich");
        assert_eq!(decode(b"5 \x80"), "5 €");
    }
}
