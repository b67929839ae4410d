//! What the cells of a column are, found from all of them.
//!
//! A column is of numbers or of dates if nine of ten cells are; the others, such as `n/k` or `?`, count as missing. A
//! decimal comma, or the order of day and month, follows from the cells that can be read in one way alone, and where no cell
//! of the column can, from the other columns of the file. What stays ambiguous is refused.

use super::batch::{Strip, Texts};
use super::dates::{self, First};
use super::notation::{Mark, Reading};
use super::{is_missing, is_placeholder};
use crate::data::describe::yes_no::YesNo;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

/// How the cells of a column are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Number(Mark),
    Words,
    Date(First),
}

/// How numbers or dates of a column are written, as far as that changes what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Written {
    DecimalMark(Mark),
    FirstInDates(First),
}

/// How the columns of a table are written, by their names: new rows are read in the same way.
pub type Notation = BTreeMap<String, Written>;

/// Why a column cannot be read; a cell that shows it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Doubt {
    /// Thousands or a fraction.
    Thousands(String),
    /// A decimal point here, a decimal comma there.
    BothMarks { point: String, comma: String },
    /// The day or the month may be first.
    DayOrMonth(String),
    /// Many different numbers, and as many words.
    Mixed { word: String, numbers: u64, cells: u64 },
}

/// So many kinds of numbers and words together are codes.
const MOST_CODES: usize = 50;

#[derive(Debug, Clone, Default)]
pub(super) struct Survey {
    cells: u64,
    numbers: u64,
    placeholders: u64,
    /// Cells that are dates with the day first, with the month first, and with either.
    dates: [u64; 2],
    either_first: u64,
    /// Cells that are numbers with one mark alone.
    point: Option<String>,
    comma: Option<String>,
    /// Cells that are thousands with one mark and fractions with the other, by what they have.
    either_point: Option<String>,
    either_comma: Option<String>,
    day_or_month: Option<String>,
    word: Option<String>,
    kinds: HashSet<String>,
}

impl Survey {
    pub fn add(&mut self, strip: &Strip) {
        if let Strip::Texts(texts) = strip {
            self.add_texts(texts);
        }
    }

    fn add_texts(&mut self, texts: &Texts) {
        let remember = |place: &mut Option<String>, cell: &str| {
            place.get_or_insert_with(|| cell.to_string());
        };
        for cell in texts.iter().filter(|cell| !is_missing(cell)) {
            self.cells += 1;
            match Reading::of(cell) {
                Some(reading) => {
                    self.numbers += 1;
                    match reading {
                        Reading::Sure(_) => {}
                        Reading::With(Mark::Point, _) => remember(&mut self.point, cell),
                        Reading::With(Mark::Comma, _) => remember(&mut self.comma, cell),
                        Reading::Either { .. } if cell.contains('.') => remember(&mut self.either_point, cell),
                        Reading::Either { .. } => remember(&mut self.either_comma, cell),
                    }
                }
                None => {
                    let [day, month] = [First::Day, First::Month].map(|first| dates::parse(cell, first));
                    self.dates[0] += u64::from(day.is_some());
                    self.dates[1] += u64::from(month.is_some());
                    self.either_first += u64::from(day.is_some() && month.is_some());
                    if day.is_some() && month.is_some() && day != month {
                        remember(&mut self.day_or_month, cell);
                    }
                    if day.is_none() && month.is_none() {
                        self.placeholders += u64::from(is_placeholder(cell));
                        remember(&mut self.word, cell);
                    }
                }
            }
            if self.kinds.len() <= MOST_CODES && !self.kinds.contains(cell) {
                self.kinds.insert(cell.to_string());
            }
        }
    }

    /// The mark that some cell of the column must have.
    pub fn marks(&self) -> [bool; 2] {
        match self.is_mostly(self.numbers) {
            true => [self.point.is_some(), self.comma.is_some()],
            false => [false; 2],
        }
    }

    /// Whether nearly all cells are of a kind, and the others can be taken for missing.
    fn is_mostly(&self, of_kind: u64) -> bool {
        let odd = self.cells - of_kind;
        of_kind > 0 && (odd * 10 <= self.cells || odd == self.placeholders)
    }

    /// Whether all cells are a yes or a no, and some of them words.
    fn is_yes_or_no(&self) -> bool {
        let kinds = self.kinds.iter().map(String::as_str);
        self.word.is_some() && self.kinds.len() <= MOST_CODES && YesNo::of(kinds).is_some()
    }

    /// Whether most cells with a value are no numbers,
    pub fn are_few_numbers(&self) -> bool {
        self.are_few(self.numbers)
    }

    /// or no dates.
    pub fn are_few_dates(&self) -> bool {
        self.are_few(self.dates[0].max(self.dates[1]))
    }

    fn are_few(&self, of_kind: u64) -> bool {
        2 * of_kind < self.cells - self.placeholders
    }

    /// How the column is read, in a file where other columns have these marks. Names are never taken for numbers.
    pub fn kind(&self, marks: [bool; 2], may_be_number: bool) -> Result<Kind, Doubt> {
        let dates = self.dates[0].max(self.dates[1]);
        if self.cells == 0 {
            return Ok(if may_be_number { Kind::Number(Mark::Point) } else { Kind::Words });
        }
        if may_be_number && self.is_mostly(self.numbers) && !self.is_yes_or_no() {
            return self.mark(marks, None).map(Kind::Number);
        }
        if self.is_mostly(dates) {
            return self.first(None).map(Kind::Date);
        }
        match &self.word {
            Some(word) if may_be_number && self.kinds.len() > MOST_CODES && self.numbers * 10 > self.cells => {
                Err(Doubt::Mixed { word: word.clone(), numbers: self.numbers, cells: self.cells })
            }
            _ => Ok(Kind::Words),
        }
    }

    /// The decimal mark of a column of numbers. Its own cells decide it, then the other columns of the file, then what is known
    /// of the column from another file.
    pub fn mark(&self, [file_point, file_comma]: [bool; 2], known: Option<Mark>) -> Result<Mark, Doubt> {
        let both = |point: &String, comma: &String| Doubt::BothMarks { point: point.clone(), comma: comma.clone() };
        match (&self.point, &self.comma) {
            (Some(point), Some(comma)) => return Err(both(point, comma)),
            (Some(_), None) => return Ok(Mark::Point),
            (None, Some(_)) => return Ok(Mark::Comma),
            (None, None) => {}
        }
        let (cell, usual) = match (&self.either_point, &self.either_comma) {
            (Some(point), Some(comma)) => return Err(both(point, comma)),
            (Some(cell), None) => (cell, Some(Mark::Point)),
            (None, Some(cell)) => (cell, None),
            (None, None) => return Ok(known.unwrap_or_default()),
        };
        let doubt = || Doubt::Thousands(cell.clone());
        match (file_point, file_comma) {
            (true, false) => Ok(Mark::Point),
            (false, true) => Ok(Mark::Comma),
            (true, true) => Err(doubt()),
            (false, false) => known.or(usual).ok_or_else(doubt),
        }
    }

    /// What comes first in the dates of a column, by the cells that are dates in one way alone, then by what is known.
    pub fn first(&self, known: Option<First>) -> Result<First, Doubt> {
        let [day, month] = self.dates.map(|dates| dates - self.either_first);
        match (day, month, known) {
            (1.., 0, _) => Ok(First::Day),
            (0, 1.., _) => Ok(First::Month),
            (.., Some(known)) => Ok(known),
            _ if day > month => Ok(First::Day),
            _ if day < month => Ok(First::Month),
            _ => match &self.day_or_month {
                Some(cell) => Err(Doubt::DayOrMonth(cell.clone())),
                None => Ok(First::Day),
            },
        }
    }

    /// What a column that is read in this way shows of how it is written; where it has whole numbers alone, the file does.
    pub fn written(&self, kind: Kind, marks: [bool; 2]) -> Option<Written> {
        let has_marks =
            [&self.point, &self.comma, &self.either_point, &self.either_comma].into_iter().any(Option::is_some);
        match (kind, marks) {
            (Kind::Number(mark), _) if has_marks => Some(Written::DecimalMark(mark)),
            (Kind::Number(_), [true, false]) => Some(Written::DecimalMark(Mark::Point)),
            (Kind::Number(_), [false, true]) => Some(Written::DecimalMark(Mark::Comma)),
            (Kind::Date(first), _) => {
                let shows = self.dates != [self.either_first; 2] || self.day_or_month.is_some();
                shows.then_some(Written::FirstInDates(first))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey(cells: &[&str]) -> Survey {
        let mut texts = Texts::default();
        cells.iter().for_each(|cell| texts.push(cell));
        let mut survey = Survey::default();
        survey.add(&Strip::Texts(texts));
        survey
    }

    fn kind(cells: &[&str]) -> Result<Kind, Doubt> {
        survey(cells).kind([false; 2], true)
    }

    #[test]
    fn a_few_odd_cells_change_no_kind() {
        let point = Ok(Kind::Number(Mark::Point));
        assert_eq!(kind(&["1", "2.5", "", "NA"]), point);
        assert_eq!(kind(&["1", "?", "-", "n/k"]), point);
        let mut cells = vec!["7"; 20];
        cells[3] = "seven";
        assert_eq!(kind(&cells), point);
        cells[4..8].fill("eight");
        assert_eq!(kind(&cells), Ok(Kind::Words));
        assert_eq!(kind(&["", "NA"]), point);
        assert_eq!(kind(&["a", "b", "-"]), Ok(Kind::Words));
        assert_eq!(survey(&["007", "008"]).kind([false; 2], false), Ok(Kind::Words));
        let many: Vec<String> =
            (0..90).map(|row| if row % 2 == 0 { row.to_string() } else { format!("{row} kg") }).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(kind(&many), Err(Doubt::Mixed { word: "1 kg".into(), numbers: 45, cells: 90 }));
    }

    #[test]
    fn marks_follow_from_what_is_sure() {
        assert_eq!(kind(&["1,5", "1.234,5", "7"]), Ok(Kind::Number(Mark::Comma)));
        assert_eq!(kind(&["1,234", "1,234.5"]), Ok(Kind::Number(Mark::Point)));
        assert_eq!(kind(&["1,234"]), Err(Doubt::Thousands("1,234".into())));
        assert_eq!(kind(&["1.234", "5.678"]), Ok(Kind::Number(Mark::Point)));
        assert_eq!(kind(&["1,5", "1.5"]), Err(Doubt::BothMarks { point: "1.5".into(), comma: "1,5".into() }));
        let (commas, points) = (survey(&["1,234"]), survey(&["1.234"]));
        assert_eq!(commas.kind([false, true], true), Ok(Kind::Number(Mark::Comma)));
        assert_eq!(commas.kind([true, false], true), Ok(Kind::Number(Mark::Point)));
        assert_eq!(points.kind([false, true], true), Ok(Kind::Number(Mark::Comma)));
        assert!(commas.kind([true; 2], true).is_err() && points.kind([true; 2], true).is_err());
    }

    #[test]
    fn the_order_of_dates_follows_from_all_of_them() {
        assert_eq!(kind(&["01/02/2020", "25/02/2020"]), Ok(Kind::Date(First::Day)));
        assert_eq!(kind(&["01/02/2020", "02/25/2020", ""]), Ok(Kind::Date(First::Month)));
        assert_eq!(kind(&["01/02/2020", "03/03/2020"]), Err(Doubt::DayOrMonth("01/02/2020".into())));
        assert_eq!(kind(&["01/01/2020", "03/03/2020"]), Ok(Kind::Date(First::Day)));
        assert_eq!(kind(&["2020-01-02", "?"]), Ok(Kind::Date(First::Day)));
    }
}
