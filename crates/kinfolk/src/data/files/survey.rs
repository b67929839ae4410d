//! What the cells of a column are, found from all of them.
//!
//! A column is of numbers or of dates if nine of ten cells are; the others, such as `n/k` or `?`, count as missing. A
//! decimal comma, or the order of day and month, follows from the cells that can be read in one way alone, and where no cell
//! of the column can, from the other columns of the file. What stays ambiguous is refused.

use super::batch::{Strip, Texts};
use super::dates::{self, First};
use super::notation::{Mark, Reading};
use super::{is_missing, is_placeholder};
use std::collections::HashSet;

/// How the cells of a column are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Number(Mark),
    Words,
    Date(First),
}

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
    dates: [u64; 2],
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

    /// How the column is read, in a file where other columns have these marks. Names are never taken for numbers.
    pub fn kind(&self, marks: [bool; 2], may_be_number: bool) -> Result<Kind, Doubt> {
        let dates = self.dates[0].max(self.dates[1]);
        if self.cells == 0 {
            return Ok(if may_be_number { Kind::Number(Mark::Point) } else { Kind::Words });
        }
        if may_be_number && self.is_mostly(self.numbers) {
            return self.mark(marks).map(Kind::Number);
        }
        if self.is_mostly(dates) {
            return match self.dates[0].cmp(&self.dates[1]) {
                std::cmp::Ordering::Greater => Ok(Kind::Date(First::Day)),
                std::cmp::Ordering::Less => Ok(Kind::Date(First::Month)),
                std::cmp::Ordering::Equal => match &self.day_or_month {
                    Some(cell) => Err(Doubt::DayOrMonth(cell.clone())),
                    None => Ok(Kind::Date(First::Day)),
                },
            };
        }
        match &self.word {
            Some(word) if may_be_number && self.kinds.len() > MOST_CODES && self.numbers * 10 > self.cells => {
                Err(Doubt::Mixed { word: word.clone(), numbers: self.numbers, cells: self.cells })
            }
            _ => Ok(Kind::Words),
        }
    }

    /// The same for a column that must be of numbers or dates; cells that are not are missing.
    pub fn mark(&self, [file_point, file_comma]: [bool; 2]) -> Result<Mark, Doubt> {
        match (&self.point, &self.comma) {
            (Some(point), Some(comma)) => Err(Doubt::BothMarks { point: point.clone(), comma: comma.clone() }),
            (Some(_), None) => Ok(Mark::Point),
            (None, Some(_)) => Ok(Mark::Comma),
            (None, None) => match (&self.either_point, &self.either_comma) {
                (Some(point), Some(comma)) => Err(Doubt::BothMarks { point: point.clone(), comma: comma.clone() }),
                (None, Some(_)) if file_point != file_comma => Ok(if file_comma { Mark::Comma } else { Mark::Point }),
                (None, Some(cell)) => Err(Doubt::Thousands(cell.clone())),
                (Some(_), None) if file_comma && !file_point => Ok(Mark::Comma),
                (Some(cell), None) if file_comma => Err(Doubt::Thousands(cell.clone())),
                _ => Ok(Mark::Point),
            },
        }
    }

    /// What comes first in dates of a column that is known to be of dates.
    pub fn first(&self) -> First {
        if self.dates[1] > self.dates[0] { First::Month } else { First::Day }
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
