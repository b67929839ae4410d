//! Points from a table or an npy file: one row per point, one column per coordinate unless it is left out.
//!
//! The first row of a text file is a header if it has words and no number. Without a header, columns are named 1, 2, ….
//! Every coordinate must be a finite number.

use super::describe::calendar::Moment;
use super::files::{Header, Input, MissingCells, Role, Source, find_roles, is_number};
use super::scaling::Scale;
use super::*;
use crate::clustering::Points;
use crate::error::option;

/// Which columns of a file are coordinates.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choice {
    /// Only these, in this order; all where empty.
    pub columns: Vec<String>,
    /// All but these.
    pub drop: Vec<String>,
    /// The column that names the points; no coordinate.
    pub id: Option<String>,
    /// Standardise every column.
    pub standardise: bool,
}

/// Points with the names of their columns.
#[derive(Debug, Clone, PartialEq)]
pub struct PointTable {
    /// The names of the coordinates.
    pub(crate) columns: Vec<String>,
    /// The names of the points, where a column has them.
    pub(crate) ids: Option<Vec<String>>,
    values: Vec<f64>,
    pub(crate) scales: Option<Vec<Scale>>,
}

impl PointTable {
    /// A table of points without names, row after row.
    pub fn new(columns: Vec<String>, values: Vec<f64>) -> Self {
        Self { columns, ids: None, values, scales: None }
    }

    /// The points, to be clustered.
    pub fn points(&self) -> Result<Points<'_>> {
        Points::new(&self.values, self.columns.len())
    }

    /// The name of a point: its id, or its number from 1.
    pub(crate) fn name(&self, point: usize) -> String {
        self.ids.as_ref().map_or_else(|| (point + 1).to_string(), |ids| ids[point].clone())
    }

    /// Converts coordinates to the units of the file.
    pub fn in_units(&self, place: &[f64]) -> Vec<f64> {
        match &self.scales {
            None => place.to_vec(),
            Some(scales) => place.iter().zip(scales).map(|(value, scale)| scale.undo(*value)).collect(),
        }
    }

    /// Standardises every column. There must be points.
    pub fn standardise(&mut self) {
        let width = self.columns.len();
        let cells = |column: usize| self.values.iter().skip(column).step_by(width).copied();
        let scales: Vec<Scale> = (0..width).map(|column| Scale::of(&Moments::of(cells(column)))).collect();
        for row in self.values.chunks_exact_mut(width) {
            for (value, scale) in row.iter_mut().zip(&scales) {
                *value = scale.apply(*value);
            }
        }
        self.scales = Some(scales);
    }
}

/// Reads the points of a file.
pub fn read(path: &Path, choice: &Choice) -> Result<PointTable> {
    let drop = |name: &str| format!("{} {}", option("drop"), quoted(name));
    let source = Source {
        input: Input::File(path),
        header: Header::IfWords,
        drop,
        missing: MissingCells::Refused(""),
        known: None,
    };
    let is_npy = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy"));
    let mut table = if is_npy { read_array(&source, choice) } else { read_table(&source, choice) }?;
    if table.values.is_empty() {
        return Err(Error::data(format!("{}: no points, want at least one row of numbers", path.display())));
    }
    if let Some(at) = table.values.iter().position(|value| !value.is_finite()) {
        let width = table.columns.len();
        let (line, name) = ((at / width + 1) as u64, &table.columns[at % width]);
        return Err(if table.values[at].is_nan() {
            source.missing(line, name, Role::Value)
        } else {
            source.infinite(line, name)
        });
    }
    table.points().map_err(|error| error.at(path.display()))?;
    if choice.standardise {
        table.standardise();
    }
    Ok(table)
}

fn read_table(source: &Source, choice: &Choice) -> Result<PointTable> {
    let path = source.input.path().display();
    let Some(table) = source.read(&|names| roles(source.input.path(), names, choice)) else {
        let endings = ".csv, .tsv, .txt, .npy, .parquet, .arrow or .feather";
        return Err(Error::settings(format!("got {path}, want a file that ends in {endings}")));
    };
    let (mut table, _) = table?;
    let ids = match choice.id.as_ref().and_then(|name| table.take(name)).map(|column| column.values) {
        Some(Cells::Words(words)) => Some(words),
        _ => None,
    };
    // Chosen columns are in the order of the choice.
    let order: HashMap<&str, usize> = choice.columns.iter().map(String::as_str).zip(0..).collect();
    table.columns.sort_by_key(|column| order.get(column.name.as_str()).copied());
    let alone = table.columns.len() == 1;
    let mut columns = Vec::with_capacity(table.columns.len());
    let mut numbers = Vec::with_capacity(table.columns.len());
    for column in table.columns {
        match column.values {
            Cells::Numbers(cells) => numbers.push(cells),
            Cells::Dates(times) => {
                let Some((time, line)) = times.first().zip(table.lines.first()) else { continue };
                let (name, time) = (&column.name, Moment::of(*time).text());
                let fault = Error::data(format!("{path} row {line}: column `{name}` holds `{time}`, want a number"));
                return Err(fault.hint(format!("leave the column out with {}", (source.drop)(name))));
            }
            Cells::Words(cells) => {
                let row = cells.iter().position(|cell| !is_number(cell)).unwrap_or(0);
                let (name, line) = (&column.name, table.lines[row]);
                let fault = Error::data(format!(
                    "{path} row {line}: column `{name}` holds `{}`, want a number",
                    shortened(&cells[row])
                ));
                return Err(match separator(&cells[row]).filter(|_| alone) {
                    Some(separator) => fault.hint(format!(
                        "its cells seem to be separated by {separator}; want commas, semicolons or tabs"
                    )),
                    None => fault.hint(format!(
                        "leave the column out with {}, or name the points by it with {} {}",
                        (source.drop)(name),
                        option("id"),
                        quoted(name)
                    )),
                });
            }
        }
        columns.push(column.name);
    }
    if columns.is_empty() && !table.lines.is_empty() {
        return Err(Error::data(format!("{path}: no column of numbers is left")));
    }
    let rows = 0..table.lines.len();
    let values = rows.flat_map(|row| numbers.iter().map(move |cells| cells[row])).collect();
    Ok(PointTable { ids, ..PointTable::new(columns, values) })
}

fn read_array(source: &Source, choice: &Choice) -> Result<PointTable> {
    let npy::Array { values, columns: width } = npy::read(source.input.path())?;
    let names: Vec<String> = (1..=width.min(values.len())).map(|column| column.to_string()).collect();
    let roles = roles(source.input.path(), &names, choice)?;
    let place = |wanted: &String| names.iter().position(|name| name == wanted);
    let kept: Vec<usize> = match choice.columns.as_slice() {
        [] => (0..names.len()).filter(|index| roles[*index] == Role::Value).collect(),
        chosen => chosen.iter().filter_map(place).collect(),
    };
    let id = choice.id.as_ref().and_then(place);
    let ids = id.map(|id| values.chunks_exact(width).map(|row| row[id].to_string()).collect());
    let values = if kept.len() == width {
        values
    } else {
        values.chunks_exact(width.max(1)).flat_map(|row| kept.iter().map(|&index| row[index])).collect()
    };
    Ok(PointTable { ids, ..PointTable::new(kept.iter().map(|&index| names[index].clone()).collect(), values) })
}

/// The role of every column; reports all faults of the choice together.
fn roles(path: &Path, names: &[String], choice: &Choice) -> Result<Vec<Role>> {
    let mut faults = Vec::new();
    let columns = choice.columns.iter().map(|name| ("columns", name, Role::Value));
    let dropped = choice.drop.iter().map(|name| ("drop", name, Role::Dropped));
    let wanted = columns.chain(dropped).chain(choice.id.iter().map(|name| ("id", name, Role::Name)));
    let given = find_roles(path, names, wanted, (option, "is in"), &mut faults);
    finish(faults)?;
    let nameless = |(name, given): (&String, &Option<_>)| name.is_empty() && given.is_none();
    if let Some(place) = names.iter().zip(&given).position(nameless).filter(|_| choice.columns.is_empty()) {
        let message = format!("{}: column {} has no name, want to know what it is for", path.display(), place + 1);
        let (id, drop) = (option("id"), option("drop"));
        return Err(Error::data(message)
            .hint(format!("name the points by it with {id} \"\", leave it out with {drop} \"\", or give it a name")));
    }
    let others = if choice.columns.is_empty() { Role::Value } else { Role::Dropped };
    Ok(given.into_iter().map(|role| role.unwrap_or(others)).collect())
}

fn quoted(name: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
    if !name.is_empty() && name.chars().all(is_plain) { name.to_string() } else { format!("\"{name}\"") }
}

/// The separator in a cell that should have been several.
fn separator(cell: &str) -> Option<&'static str> {
    let known = [(';', "semicolons"), ('\t', "tabs"), (',', "commas"), ('|', "`|`"), (' ', "spaces")];
    let (_, name) = known
        .into_iter()
        .find(|(letter, _)| cell.contains(*letter) && cell.split(*letter).any(|piece| is_number(piece.trim())))?;
    Some(name)
}

fn shortened(text: &str) -> String {
    const LONGEST: usize = 200;
    text.char_indices().nth(LONGEST).map_or_else(|| text.to_string(), |(end, _)| format!("{}…", &text[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(name: &str, content: &str, choice: &Choice) -> Result<PointTable> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        let result = read(&path, choice);
        let place = format!("{}{}", folder.path().display(), std::path::MAIN_SEPARATOR);
        result.map_err(|error| Error::data(error.to_string().replace(&place, "")))
    }

    fn points(content: &str, choice: &Choice) -> (Vec<String>, Vec<f64>) {
        let table = read_text("p.csv", content, choice).unwrap();
        (table.columns.clone(), table.values)
    }

    fn message(content: &str, choice: &Choice) -> String {
        read_text("p.csv", content, choice).unwrap_err().to_string()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn a_first_row_of_words_is_a_header() {
        let all = Choice::default();
        let expected = (names(&["x", "y"]), vec![1.0, 2.0, 3.0, -4e-1]);
        assert_eq!(points("x,y\n1,2\n3,-4e-1\n", &all), expected);
        assert_eq!(points("1,2\n3,-0.4\n", &all), (names(&["1", "2"]), expected.1.clone()));
        assert_eq!(points("\u{feff}x, y\r\n1, 2\r\n3,-.4", &all).1, expected.1);
        assert_eq!(read_text("p.TSV", "1\t2\n", &all).unwrap().values, [1.0, 2.0]);
        assert_eq!(read_text("p.csv", "x;y\n1;2,5\n", &all).unwrap().values, [1.0, 2.5]);
        assert_eq!(read_text("p.txt", "0,5;2,5\n", &all).unwrap().values, [0.5, 2.5]);
    }

    #[test]
    fn a_point_is_not_taken_for_a_header() {
        let dropped = Choice { drop: names(&["p0"]), ..Choice::default() };
        for choice in [Choice::default(), dropped] {
            assert_eq!(
                message("p0,0.03,-0.04\np1,2,3\n", &choice),
                "p.csv row 1: `p0` is a word and `0.03` a number, want the names of all columns or a point\n  hint: begin \
                 the file with a row of names, none of them a number"
            );
        }
        assert!(message("p0,nan\np1,2\n", &Choice::default()).contains("`nan` a number"));
    }

    #[test]
    fn a_column_without_a_name_is_no_coordinate_unasked() {
        let content = ",x,y\n0,1,2\n1,3,4\n";
        assert_eq!(
            message(content, &Choice::default()),
            "p.csv: column 1 has no name, want to know what it is for\n  hint: name the points by it with id \"\", leave \
             it out with drop \"\", or give it a name"
        );
        let expected = (names(&["x", "y"]), vec![1.0, 2.0, 3.0, 4.0]);
        assert_eq!(points(content, &Choice { id: Some(String::new()), ..Choice::default() }), expected);
        assert_eq!(points(content, &Choice { drop: names(&[""]), ..Choice::default() }), expected);
        assert_eq!(points(content, &Choice { columns: names(&["x", "y"]), ..Choice::default() }), expected);
        assert_eq!(points(content, &Choice { columns: names(&["", "x"]), ..Choice::default() }).0, ["", "x"]);
    }

    #[test]
    fn hints_can_be_followed() {
        let hint = |content: &str| message(content, &Choice::default()).lines().nth(1).unwrap().to_string();
        assert!(hint("x,y\n1,2\n3,\n").ends_with("leave the column out with drop y"));
        assert!(hint("the x,y\n,2\n").ends_with("leave the column out with drop \"the x\""));
        for (content, separator) in [("a b\n1.5 2\n", "spaces"), ("a|b\nc|2\n", "`|`")] {
            assert_eq!(
                hint(content),
                format!("  hint: its cells seem to be separated by {separator}; want commas, semicolons or tabs")
            );
        }
        assert!(hint("city\nNew York\n").contains("drop city"));
    }

    #[test]
    fn columns_are_chosen_dropped_or_names() {
        let content = "id,x,y,z\na,1,2,3\nb,4,5,6\n";
        let chosen = Choice { columns: names(&["z", "x"]), ..Choice::default() };
        assert_eq!(points(content, &chosen), (names(&["z", "x"]), vec![3.0, 1.0, 6.0, 4.0]));
        let dropped = Choice { drop: names(&["id", "y"]), ..Choice::default() };
        assert_eq!(points(content, &dropped), (names(&["x", "z"]), vec![1.0, 3.0, 4.0, 6.0]));
        let named = Choice { id: Some("id".into()), ..Choice::default() };
        let table = read_text("p.csv", content, &named).unwrap();
        assert_eq!((table.name(1), table.columns.len()), ("b".to_string(), 3));
        assert_eq!(read_text("p.csv", content, &dropped).unwrap().name(1), "2");
        assert_eq!(
            message(content, &Choice::default()),
            "p.csv row 2: column `id` holds `a`, want a number\n  hint: leave the column out with drop id, or name the \
             points by it with id id"
        );
        let faulty = Choice { columns: names(&["x", "x", "w"]), id: Some("x".into()), ..Choice::default() };
        assert_eq!(
            message(content, &faulty),
            "3 faults\n- columns: column `x` is in columns already\n- columns: p.csv has no column `w`\n  \
             hint: its columns are id, x, y, z\n- id: column `x` is in columns already"
        );
    }

    #[test]
    fn faults_name_row_and_column() {
        let first = |content: &str| message(content, &Choice::default()).lines().next().unwrap().to_string();
        for empty in ["", "\n", "x,y\n"] {
            assert_eq!(first(empty), "p.csv: no points, want at least one row of numbers", "{empty:?}");
        }
        assert_eq!(first("1,2\n3\n"), "p.csv row 2: 1 cell, want 2");
        assert_eq!(first("x,y\n1,2\n3,\n"), "p.csv row 3: column `y` has no value");
        assert_eq!(first("1,nan\n"), "p.csv row 1: column `2` has no value");
        assert_eq!(first("1,-inf\n"), "p.csv row 1: column `2` is not finite");
        assert_eq!(first("1,2\n3,four\n"), "p.csv row 2: column `2` holds `four`, want a number");
        assert_eq!(
            first("1\n1e200\n"),
            "p.csv: points: row 2, column 1: got 1e200, want a number of magnitude at most 1e150"
        );
        let all = Choice { drop: names(&["x"]), ..Choice::default() };
        assert_eq!(message("x\n1\n", &all), "p.csv: no column of numbers is left");
        assert!(read(Path::new("absent.csv"), &all).unwrap_err().to_string().starts_with("reading absent.csv: "));
        assert_eq!(
            read(Path::new("p.xls"), &all).unwrap_err().to_string(),
            "got p.xls, want a file that ends in .csv, .tsv, .txt, .npy, .parquet, .arrow or .feather"
        );
    }

    #[test]
    fn standardised_columns_have_mean_0_and_deviation_1() {
        let choice = Choice { standardise: true, ..Choice::default() };
        let table = read_text("p.csv", "1,0.1,5\n3,0.1,9\n", &choice).unwrap();
        assert_eq!(table.values, [-1.0, 0.0, -1.0, 1.0, 0.0, 1.0]);
        assert_eq!(table.in_units(&[0.5, 0.0, -1.0]), [2.5, 0.1, 5.0]);
    }

    #[test]
    fn arrays_have_numbered_columns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.npy");
        let write = |values: &[f64], shape: &str| {
            let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n");
            let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
            bytes.extend((header.len() as u16).to_le_bytes());
            bytes.extend(header.as_bytes());
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            fs::write(&path, bytes).unwrap();
        };
        write(&[7.0, 1.0, 2.0, 8.0, 3.0, 4.0], "(2, 3)");
        let choice = Choice { id: Some("1".into()), ..Choice::default() };
        let table = read(&path, &choice).unwrap();
        assert_eq!((table.columns.clone(), table.name(1)), (names(&["2", "3"]), "8".into()));
        assert_eq!(table.values, [1.0, 2.0, 3.0, 4.0]);
        let choice = Choice { columns: names(&["3", "1"]), ..Choice::default() };
        assert_eq!(read(&path, &choice).unwrap().values, [2.0, 7.0, 4.0, 8.0]);
        write(&[1.0, f64::NAN], "(2,)");
        let text = read(&path, &Choice::default()).unwrap_err().to_string();
        assert!(text.contains("p.npy row 2: column `1` has no value"), "{text}");
        write(&[], "(0, 3)");
        assert!(read(&path, &Choice::default()).unwrap_err().to_string().contains("no points"));
    }
}
