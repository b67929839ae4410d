//! Values that stand in braces in a paper's file.

use kinfolk::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Value;

/// Columns of equal length, by name.
pub(crate) type Columns = BTreeMap<String, Vec<Value>>;

/// A number, or where it stands: `name`, or `name[other]`, the element of the list `name` at the place that the value
/// `other` has in its column. Absent numbers are `nan`.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Number {
    Known(f64),
    Named(String),
}

/// The row of every table that is in force: values by name, each with its place in its column.
#[derive(Clone, Default)]
pub(crate) struct Scope(BTreeMap<String, (usize, Value)>);

impl Scope {
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut scope = self.clone();
        scope.0.insert(name.to_string(), (0, value.into()));
        scope
    }

    /// One scope for every combination of rows; those of the last table change fastest.
    pub(crate) fn each(&self, tables: &[Columns]) -> Result<Vec<Self>> {
        let mut scopes = vec![self.clone()];
        for table in tables {
            let rows = table.values().map(Vec::len).max().unwrap_or(0);
            if let Some((name, column)) = table.iter().find(|(_, column)| column.len() != rows) {
                return Err(Error::data(format!("{name}: got {} values, want {rows}", column.len())));
            }
            let with_row = |scope: &Scope, row: usize| {
                let mut scope = scope.clone();
                scope.0.extend(table.iter().map(|(name, column)| (name.clone(), (row, column[row].clone()))));
                scope
            };
            scopes = scopes.iter().flat_map(|scope| (0..rows).map(move |row| with_row(scope, row))).collect();
        }
        Ok(scopes)
    }

    fn find(&self, name: &str) -> Result<&(usize, Value)> {
        self.0.get(name).ok_or_else(|| Error::data(format!("no value {name}")))
    }

    fn value(&self, named: &str) -> Result<&Value> {
        let mut parts = named.split('[');
        let mut value = &self.find(parts.next().unwrap_or_default())?.1;
        for index in parts.map(|part| part.trim_end_matches(']')) {
            let place = index.parse().or_else(|_| self.find(index).map(|(place, _)| *place))?;
            // A value that is no list stands for a list of it.
            if let Value::Array(list) = value {
                value = list.get(place).ok_or_else(|| Error::data(format!("{named}: no element {place}")))?;
            }
        }
        Ok(value)
    }

    /// The text with values in place of their names; they may hold names in turn.
    pub(crate) fn text(&self, text: &str) -> Result<String> {
        let Some((before, rest)) = text.split_once('{') else { return Ok(text.to_string()) };
        let fault = || Error::data(format!("{text}: want a name in braces, of a text or a number"));
        let (named, after) = rest.split_once('}').ok_or_else(fault)?;
        let value = match self.value(named)? {
            Value::String(value) => self.text(value)?,
            Value::Integer(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            _ => return Err(fault()),
        };
        Ok(format!("{before}{value}{}", self.text(after)?))
    }

    /// The texts likewise; a name of a list alone stands for its elements.
    pub(crate) fn texts(&self, texts: &[String]) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for text in texts {
            let alone = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
            match alone.and_then(|named| self.value(named).ok()) {
                Some(Value::Array(list)) => found.extend(list.iter().filter_map(Value::as_str).map(str::to_string)),
                _ => found.push(self.text(text)?),
            }
        }
        Ok(found)
    }

    pub(crate) fn number(&self, number: &Number) -> Result<Option<f64>> {
        let named = match number {
            Number::Known(number) => return Ok(Some(*number)),
            Number::Named(named) => self.text(named)?,
        };
        match self.value(&named)? {
            Value::Integer(number) => Ok(Some(*number as f64)),
            Value::Float(number) => Ok(Some(*number).filter(|number| !number.is_nan())),
            _ => Err(Error::data(format!("{named}: want a number"))),
        }
    }

    pub(crate) fn holds(&self, named: &str) -> Result<bool> {
        self.value(named)?.as_bool().ok_or_else(|| Error::data(format!("{named}: want true or false")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(text: &str) -> Vec<Scope> {
        #[derive(Deserialize)]
        struct File {
            each: Vec<Columns>,
        }
        Scope::default().each(&toml::from_str::<File>(text).unwrap().each).unwrap()
    }

    #[test]
    fn rows_are_combined_and_names_replaced() {
        let scopes =
            scopes(r#"each = [{ a = [1, 2], list = [["x", "y"], []] }, { b = [0.5, 1.0], of = ["{a}", "-"] }]"#);
        let texts: Vec<String> = scopes.iter().map(|scope| scope.text("a={a} b={b} {of}").unwrap()).collect();
        assert_eq!(texts, ["a=1 b=0.5 1", "a=1 b=1 -", "a=2 b=0.5 2", "a=2 b=1 -"]);
        let spliced = |scope: &Scope| scope.texts(&["{list}".into(), "z{a}".into()]).unwrap();
        assert_eq!([spliced(&scopes[0]), spliced(&scopes[2])], [vec!["x", "y", "z1"], vec!["z2"]]);
        assert!(scopes[0].text("{c}").is_err() && scopes[0].text("{a").is_err() && scopes[0].text("{list}").is_err());
    }

    #[test]
    fn numbers_stand_where_another_value_stands() {
        let scopes = scopes("each = [{ a = [1, 2], list = [[3, nan], 4] }, { b = [5, 6], deep = [[[7], [8]], nan] }]");
        let numbers = |named: &str| {
            let number = Number::Named(named.into());
            scopes.iter().map(|scope| scope.number(&number).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(numbers("list[b]"), [Some(3.0), None, Some(4.0), Some(4.0)]);
        assert_eq!(numbers("list[0]"), [Some(3.0), Some(3.0), Some(4.0), Some(4.0)]);
        assert_eq!(numbers("deep[a][0]"), [Some(7.0), None, Some(8.0), None]);
        assert!(scopes[0].number(&Number::Named("list[2]".into())).is_err());
    }
}
