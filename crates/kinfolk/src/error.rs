//! The one error type: a kind to act on, and a message that says where, what was found,
//! what was wanted, and what to do.

use std::fmt;

/// The kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A setting of the experiment or the command line is at fault.
    Settings,
    /// A dataset or a table is missing or malformed.
    Data,
    /// Two things that must have the same shape do not.
    Shape,
    /// Training diverged.
    Diverged,
    /// A client answered something unusable, or not at all.
    Client,
    /// Server and clients disagree about the protocol.
    Federation,
    /// A file could not be read or written.
    Io,
    /// The work or the option is not known here.
    Unsupported,
    /// The user asked to stop.
    Stopped,
    /// A bug in Kinfolk: a panic that was caught.
    Internal,
}

impl ErrorKind {
    /// Whether the input is to blame (exit code 2) rather than the run (exit code 1).
    pub fn is_input(self) -> bool {
        matches!(self, Self::Settings | Self::Data | Self::Io | Self::Unsupported)
    }

    /// The kind in one lower-case word.
    #[doc(hidden)]
    pub fn word(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// An error with its kind, a message, and an optional hint.
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    ends_run: bool,
    /// What other machines may hear, if that was said.
    told: Option<String>,
}

/// Delimiters of an option's name in a message.
const OPTION: [char; 2] = ['\u{E000}', '\u{E001}'];

/// The name of an option in a message. Whoever shows the message decides how options are spelt: [`Error::spelling`].
pub(crate) fn option(name: &str) -> String {
    format!("{}{name}{}", OPTION[0], OPTION[1])
}

/// The library's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of this kind with this message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, ends_run: kind == ErrorKind::Stopped, told: None }
    }

    /// A fault in a setting.
    pub fn settings(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Settings, message)
    }

    /// A fault in a dataset.
    pub fn data(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Data, message)
    }

    /// A fault between server and clients.
    #[doc(hidden)]
    pub fn federation(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Federation, message)
    }

    /// A file operation that failed, with the path it failed on.
    #[doc(hidden)]
    pub fn io(doing: &str, path: impl AsRef<std::path::Path>, error: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Io, format!("{doing} {}: {error}", path.as_ref().display()))
    }

    /// Adds a hint, which is shown on a line of its own.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Puts a place in front of the message.
    #[doc(hidden)]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// The same in other words.
    pub(crate) fn reworded(mut self, reword: impl Fn(&str) -> String) -> Self {
        self.message = reword(&self.message);
        self.hint = self.hint.map(|hint| reword(&hint));
        self
    }

    /// Ends the whole run, rather than one method.
    #[doc(hidden)]
    pub fn ending_the_run(mut self) -> Self {
        self.ends_run = true;
        self
    }

    /// Whether the whole run ends, as when the user stops it or the user's own code fails.
    #[doc(hidden)]
    pub fn ends_run(&self) -> bool {
        self.ends_run
    }

    /// Other machines may hear it in full: it quotes no cell, no path and no code.
    pub(crate) fn open(mut self) -> Self {
        self.told = Some(self.to_string());
        self
    }

    /// Other machines may hear this instead.
    pub(crate) fn telling(mut self, told: impl Into<String>) -> Self {
        self.told = Some(told.into());
        self
    }

    /// What other machines may hear of it. Errors between server and clients are about messages, not data; all others may
    /// quote what must not leave a machine, and are reduced to their kind.
    #[doc(hidden)]
    pub fn told(&self) -> String {
        match (&self.told, self.kind) {
            (Some(told), _) => told.clone(),
            (None, ErrorKind::Federation | ErrorKind::Unsupported | ErrorKind::Diverged | ErrorKind::Stopped) => {
                self.to_string()
            }
            (None, kind) => format!("an error of kind {}; the machine's own log says more", kind.word()),
        }
    }

    /// The message and the hint, with options spelt by this function: `out`, `path_values`, or `set ` before an override.
    #[doc(hidden)]
    pub fn spelling(&self, spell: impl Fn(&str) -> String) -> String {
        let text = self.with_marks();
        let pieces = text.split(OPTION).enumerate();
        pieces.map(|(place, piece)| if place % 2 == 1 { spell(piece) } else { piece.to_string() }).collect()
    }

    fn with_marks(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}\n  hint: {hint}", self.message),
            None => self.message.clone(),
        }
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Several faults as one error, each on its own line.
    #[doc(hidden)]
    pub fn all(faults: Vec<Error>) -> Self {
        if let [only] = faults.as_slice() {
            return only.clone();
        }
        let kind = faults.first().map_or(ErrorKind::Settings, Error::kind);
        let lines: Vec<String> = faults.iter().map(|fault| format!("- {}", fault.with_marks())).collect();
        Self::new(kind, format!("{} faults\n{}", faults.len(), lines.join("\n")))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A Rust program finds the option among the fields of `run::Options`; a setting needs no prefix.
        f.write_str(&self.spelling(|option| match option {
            "out" => "Options::folder".into(),
            "resume" => "Options::resume".into(),
            "set " => String::new(),
            option => option.into(),
        }))
    }
}

impl std::error::Error for Error {}
