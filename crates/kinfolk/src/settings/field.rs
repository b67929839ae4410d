//! Settings as fields of a struct: name, type, bounds, default and help are declared once, and reading, checks and help
//! follow.
//!
//! ```text
//! settings! {
//!     /// How clients train.
//!     pub(super) struct Training {
//!         /// rounds of training at most
//!         rounds: usize [1..=1 << 40] = 100,
//!         /// rows in a step (default all)
//!         batch: Option<u32> [1..=1 << 31],
//!         /// where the first models come from
//!         start: Start = "random",
//!         /// clients that look for the start
//!         #[only_with(start = "farthest")]
//!         start_clients: Option<usize> [1..=1 << 20],
//!         optimiser: Optimising,
//!     }
//! }
//! ```
//!
//! The struct has public fields and a [`Default`](std::default::Default), in which a required setting is still unset (0, or
//! empty) and so refused when it is checked. A function `fn check(&self, check: &mut Check)` after the struct checks combinations of settings. A setting without a
//! default is required, unless its type is an `Option`. A field whose type is another such struct stands for all settings of
//! that struct. Bounds are `low..=high`, `low..high`, `above low`, or the allowed words.

use super::{Bounds, Check, Default, Kind, Setting, Settings, finish, number};
use crate::error::{Error, Result};
use toml::Value;

/// The type of a field: one setting, or a group of settings.
#[doc(hidden)]
pub trait Field: Sized {
    /// The type of its bounds.
    type Bound;
    /// The allowed values, without bounds.
    const KIND: Kind = Kind::Text;
    /// A word that may replace a value.
    const OR: Option<&'static str> = None;
    /// Whether it may be left out without a default.
    const OPTIONAL: bool = false;
    /// The settings of a group; empty for one value.
    const GROUP: &'static [Setting] = &[];

    /// Reads a checked value.
    fn parse(value: &Value) -> Option<Self>;

    /// Its value in TOML; `None` where it is absent.
    fn value(&self) -> Option<Value>;

    /// What a required setting is before it is given. Its check refuses that.
    fn unset() -> Self;

    /// Reads the setting of this name; `None` where a required one is missing.
    fn find(settings: &Settings, name: &str) -> Option<Self> {
        settings.get(name).and_then(Self::parse)
    }

    /// Adds it to a table under this name.
    fn put(&self, name: &str, table: &mut toml::Table) {
        table.extend(self.value().map(|value| (name.to_string(), value)));
    }

    /// Checks the combination of settings in a group.
    fn check(&self, _: &mut Check) {}
}

/// A struct of settings.
pub trait Declared: Field {
    /// Their declarations.
    const SETTINGS: &'static [Setting];

    /// Reads them; `None` where a required one is missing.
    fn read(settings: &Settings) -> Option<Self>;

    /// All of them in TOML, as a section of an experiment has them.
    fn to_table(&self) -> toml::Table {
        let mut table = toml::Table::new();
        self.put("", &mut table);
        table
    }

    /// Checks their combination, once groups among them have been checked.
    fn check_together(&self, _: &mut Check) {}

    /// Checks a section whose settings are valid one by one.
    fn check_section(place: &str, settings: &Settings, faults: &mut Vec<Error>) {
        let declared = Self::SETTINGS;
        faults.extend(declared.iter().filter_map(|setting| settings.misplaced(place, setting, declared)));
        Self::of(settings).check(&mut Check { place, settings, declared, faults });
    }

    /// Checks and reads a table.
    fn from_table(place: &str, given: toml::Table) -> Result<Self> {
        let mut faults = Vec::new();
        let settings = Settings::check(place, Self::SETTINGS, given, &mut faults);
        if faults.is_empty() {
            Self::check_section(place, &settings, &mut faults);
        }
        finish(faults).map(|()| Self::of(&settings))
    }

    /// Reads checked settings.
    ///
    /// # Panics
    ///
    /// If a required one is missing, which is a bug of the caller.
    fn of(settings: &Settings) -> Self {
        Self::read(settings).expect("the settings were checked")
    }
}

/// Fields that are one value or one list: the type of their bounds, the allowed values, and how they are unset, read and written.
macro_rules! fields {
    ($($type:ty: $bound:ty, $kind:expr, $unset:expr, $read:expr, $write:expr;)*) => {$(
        impl Field for $type {
            type Bound = $bound;
            const KIND: Kind = $kind;

            fn parse(value: &Value) -> Option<Self> {
                $read(value)
            }

            fn value(&self) -> Option<Value> {
                Some($write(self))
            }

            fn unset() -> Self {
                $unset
            }
        }
    )*};
}

fields! {
    u32: i64, Kind::Integer(ANY), 0, read_whole, write_whole;
    u64: i64, Kind::Integer(ANY), 0, read_whole, write_whole;
    usize: i64, Kind::Integer(ANY), 0, read_whole, write_whole;
    f64: f64, Kind::Number(ANY), f64::NAN, number, |own: &f64| Value::Float(*own);
    bool: (), Kind::Flag, false, Value::as_bool, |own: &bool| Value::Boolean(*own);
    String: (), Kind::Text, String::new(), |text: &Value| text.as_str().map(str::to_string), |own: &String| own.clone().into();
    Vec<String>: (), Kind::Texts, Vec::new(), read_list, write_list;
    Vec<usize>: i64, Kind::Integers(ANY), Vec::new(), read_list, write_list;
}

fn read_whole<T: TryFrom<i64>>(value: &Value) -> Option<T> {
    value.as_integer()?.try_into().ok()
}

fn write_whole<T: Copy + TryInto<i64>>(own: &T) -> Value {
    Value::Integer((*own).try_into().unwrap_or(i64::MAX))
}

fn read_list<T: Field>(value: &Value) -> Option<Vec<T>> {
    value.as_array()?.iter().map(T::parse).collect()
}

fn write_list<T: Field>(list: &[T]) -> Value {
    Value::Array(list.iter().filter_map(T::value).collect())
}

/// One positive number, or a list of them.
impl Field for Vec<f64> {
    type Bound = ();
    const KIND: Kind = Kind::Positives;

    fn parse(value: &Value) -> Option<Self> {
        match value {
            Value::Array(list) => list.iter().map(number).collect(),
            one => number(one).map(|one| vec![one]),
        }
    }

    fn value(&self) -> Option<Value> {
        match self.as_slice() {
            [one] => one.value(),
            list => Some(write_list(list)),
        }
    }

    fn unset() -> Self {
        Vec::new()
    }
}

impl<T: Field> Field for Option<T> {
    type Bound = T::Bound;
    const KIND: Kind = T::KIND;
    const OR: Option<&'static str> = T::OR;
    const OPTIONAL: bool = true;

    fn parse(value: &Value) -> Option<Self> {
        T::parse(value).map(Some)
    }

    fn value(&self) -> Option<Value> {
        self.as_ref().and_then(T::value)
    }

    fn unset() -> Self {
        None
    }

    fn find(settings: &Settings, name: &str) -> Option<Self> {
        Some(settings.get(name).and_then(T::parse))
    }
}

/// A value, or `"auto"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auto<T> {
    /// To be chosen automatically.
    Auto,
    /// This value.
    Given(T),
}

impl<T> Auto<T> {
    pub(crate) fn given(self) -> Option<T> {
        match self {
            Auto::Auto => None,
            Auto::Given(value) => Some(value),
        }
    }
}

impl<T> From<T> for Auto<T> {
    fn from(value: T) -> Self {
        Auto::Given(value)
    }
}

impl From<f64> for Auto<Vec<f64>> {
    fn from(value: f64) -> Self {
        Auto::Given(vec![value])
    }
}

impl<T: Field> Field for Auto<T> {
    type Bound = T::Bound;
    const KIND: Kind = T::KIND;
    const OR: Option<&'static str> = Some("auto");

    fn parse(value: &Value) -> Option<Self> {
        if value.as_str() == Some("auto") { Some(Auto::Auto) } else { T::parse(value).map(Auto::Given) }
    }

    fn value(&self) -> Option<Value> {
        match self {
            Auto::Auto => Some("auto".into()),
            Auto::Given(value) => value.value(),
        }
    }

    fn unset() -> Self {
        Auto::Given(T::unset())
    }
}

/// A number, one for each of several, or some by name.
#[derive(Debug, Clone, PartialEq)]
pub enum ForEach {
    /// The same for all.
    One(f64),
    /// In their order.
    List(Vec<f64>),
    /// By their names.
    Named(Vec<(String, f64)>),
}

impl Field for ForEach {
    type Bound = ();
    const KIND: Kind = Kind::Strengths;

    fn parse(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Array(list) => ForEach::List(list.iter().map(number).collect::<Option<_>>()?),
            Value::Table(table) => {
                let named = table.iter().map(|(name, value)| Some((name.clone(), number(value)?)));
                ForEach::Named(named.collect::<Option<_>>()?)
            }
            one => ForEach::One(number(one)?),
        })
    }

    fn value(&self) -> Option<Value> {
        match self {
            ForEach::One(one) => one.value(),
            ForEach::List(list) => Some(write_list(list)),
            ForEach::Named(named) => {
                Some(Value::Table(named.iter().map(|(name, one)| (name.clone(), Value::Float(*one))).collect()))
            }
        }
    }

    fn unset() -> Self {
        ForEach::List(Vec::new())
    }
}

pub const fn count(parts: &[&[Setting]]) -> usize {
    let (mut part, mut count) = (0, 0);
    while part < parts.len() {
        count += parts[part].len();
        part += 1;
    }
    count
}

pub const fn concatenate<const COUNT: usize>(parts: &[&[Setting]]) -> [Setting; COUNT] {
    const EMPTY: Setting = Setting { name: "", kind: Kind::Flag, default: Default::Absent, only_with: None, help: "" };
    let mut all = [EMPTY; COUNT];
    let (mut part, mut place, mut filled) = (0, 0, 0);
    while part < parts.len() {
        if place == parts[part].len() {
            (part, place) = (part + 1, 0);
            continue;
        }
        all[filled] = parts[part][place];
        (place, filled) = (place + 1, filled + 1);
    }
    all
}

const ANY: Bounds = Bounds::from(f64::MIN, f64::MAX);

impl Kind {
    pub const fn within(self, bounds: Bounds) -> Self {
        match self {
            Kind::Integer(_) => Kind::Integer(bounds),
            Kind::Integers(_) => Kind::Integers(bounds),
            Kind::Number(_) => Kind::Number(bounds),
            _ => panic!("only numbers have bounds"),
        }
    }
}

/// Declares a struct of settings: for each its name, type, bounds, default and help. Reading, checks, help and
/// [`Default`](std::default::Default) follow. A setting without a default must be given, unless it is an `Option`.
///
/// ```
/// use kinfolk::settings::Declared;
///
/// kinfolk::settings! {
///     /// How long to train.
///     pub struct Length {
///         /// rounds of training
///         rounds: usize [1..=1000] = 20,
///         /// stop at this loss
///         goal: Option<f64> [above 0.0],
///     }
/// }
///
/// let long = Length { rounds: 0, ..Length::default() };
/// let refused = Length::from_table("method.mine", long.to_table()).unwrap_err();
/// assert_eq!(refused.to_string(), "method.mine.rounds: got 0, want a whole number from 1 to 1000");
/// ```
#[macro_export]
macro_rules! settings {
    (
        $(#[$about:meta])*
        $access:vis struct $name:ident {
            $(
                $(#[doc = $help:literal])*
                $(#[only_with($choice:ident = $($word:literal)|+)])?
                $field:ident : $type:ty $([$($bounds:tt)+])? $(= $default:tt)?,
            )*
        }
        $(fn check($($parameters:tt)*) $body:block)?
    ) => {
        $(#[$about])*
        // Help is for people, who write intervals in brackets.
        #[allow(rustdoc::broken_intra_doc_links)]
        #[derive(Debug, Clone)]
        $access struct $name {
            $($(#[doc = $help])* $access $field: $type,)*
        }

        impl $crate::settings::Declared for $name {
            const SETTINGS: &'static [$crate::settings::Setting] = {
                use $crate::settings::{Field, Kind, Setting, field};
                const PARTS: &[&[Setting]] = &[$({
                    const PLAIN: Kind = $crate::settings::bounded!($type $(, $($bounds)+)?);
                    const ONE: &[Setting] = &[Setting {
                        name: stringify!($field),
                        kind: match <$type as Field>::OR {
                            Some(word) => Kind::Or(word, &PLAIN),
                            None => PLAIN,
                        },
                        default: $crate::settings::default!($type $(, $default)?),
                        only_with: $crate::settings::only_with!($($choice = $($word)|+)?),
                        help: concat!($($help),*).trim_ascii_start(),
                    }];
                    if <$type as Field>::GROUP.is_empty() { ONE } else { <$type as Field>::GROUP }
                },)*];
                const ALL: [Setting; field::count(PARTS)] = field::concatenate(PARTS);
                &ALL
            };

            fn read(settings: &$crate::settings::Settings) -> Option<Self> {
                Some(Self { $($field: <$type as $crate::settings::Field>::find(settings, stringify!($field))?,)* })
            }

            $(fn check_together($($parameters)*) $body)?
        }

        impl ::std::default::Default for $name {
            fn default() -> Self {
                use $crate::settings::{Declared, Field, Settings};
                let usual = Settings::defaults(Self::SETTINGS);
                Self { $($field: Field::find(&usual, stringify!($field)).unwrap_or_else(Field::unset),)* }
            }
        }

        impl $crate::settings::Field for $name {
            type Bound = ();
            const GROUP: &'static [$crate::settings::Setting] = <Self as $crate::settings::Declared>::SETTINGS;

            fn parse(_: &$crate::settings::Value) -> Option<Self> {
                None
            }

            fn find(settings: &$crate::settings::Settings, _: &str) -> Option<Self> {
                <Self as $crate::settings::Declared>::read(settings)
            }

            fn value(&self) -> Option<$crate::settings::Value> {
                None
            }

            fn unset() -> Self {
                Self::default()
            }

            fn put(&self, _: &str, table: &mut $crate::settings::Table) {
                $($crate::settings::Field::put(&self.$field, stringify!($field), table);)*
            }

            fn check(&self, check: &mut $crate::settings::Check) {
                $($crate::settings::Field::check(&self.$field, check);)*
                $crate::settings::Declared::check_together(self, check);
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! bounded {
    ($type:ty) => {
        <$type as $crate::settings::Field>::KIND
    };
    ($type:ty, $($word:literal),+) => {
        $crate::settings::Kind::OneOf(&[$($word),+])
    };
    ($type:ty, above $low:literal .. $high:literal) => {
        $crate::settings::bounded!(@ $type, $low, true, $high, true)
    };
    ($type:ty, above $low:literal ..= $high:expr) => {
        $crate::settings::bounded!(@ $type, $low, true, $high, false)
    };
    ($type:ty, above $low:literal) => {
        $crate::settings::bounded!(@ $type, $low, true, f64::MAX, false)
    };
    ($type:ty, $low:literal ..= $high:expr) => {
        $crate::settings::bounded!(@ $type, $low, false, $high, false)
    };
    ($type:ty, $low:literal .. $high:expr) => {
        $crate::settings::bounded!(@ $type, $low, false, $high, true)
    };
    (@ $type:ty, $low:expr, $above:literal, $high:expr, $below:literal) => {{
        const LOW: <$type as $crate::settings::Field>::Bound = $low;
        const HIGH: <$type as $crate::settings::Field>::Bound = $high;
        let bounds = $crate::settings::Bounds { low: LOW as f64, above: $above, high: HIGH as f64, below: $below };
        <$type as $crate::settings::Field>::KIND.within(bounds)
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! default {
    ($type:ty) => {
        match <$type as $crate::settings::Field>::OPTIONAL {
            true => $crate::settings::Default::Absent,
            false => $crate::settings::Default::Required,
        }
    };
    ($type:ty, $default:tt) => {
        $crate::settings::Default::Is(stringify!($default))
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! only_with {
    () => {
        None
    };
    ($choice:ident = $($word:literal)|+) => {
        Some((stringify!($choice), &[$(stringify!($word)),+]))
    };
}

/// Declares enums whose variants are words, for [`settings!`](crate::settings!), or the words of an existing enum.
#[macro_export]
macro_rules! choices {
    ($(
        $(#[$about:meta])*
        $access:vis enum $name:ident { $($variant:ident = $word:literal),+ $(,)? }
    )+) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $access enum $name {
            $(#[doc = $word] $variant,)+
        }

        $crate::settings::choices!($name { $($variant = $word),+ });
    )+};
    ($name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $crate::settings::Field for $name {
            type Bound = ();
            const KIND: $crate::settings::Kind = $crate::settings::Kind::OneOf(&[$($word),+]);

            fn parse(value: &$crate::settings::Value) -> Option<Self> {
                match value.as_str()? {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }

            fn value(&self) -> Option<$crate::settings::Value> {
                Some(self.to_string().into())
            }

            fn unset() -> Self {
                [$(Self::$variant),+][0]
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $word,)+
                })
            }
        }
    };
}

pub use {bounded, choices, default, only_with, settings};
