//! A folder for results.

use super::lock::Lock;
use crate::error::{Error, Result, option};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A folder locked by this process, without any of the files about to be written. If it stays empty, it is removed again.
pub struct NewFolder {
    path: PathBuf,
    // Dropped first: an empty folder can be removed, one with a lock in it cannot.
    lock: Option<Lock>,
    /// Those of the folder and its parents that were created for it.
    made: Vec<PathBuf>,
}

impl NewFolder {
    /// Creates the folder, or takes an existing one without files of these names.
    pub fn claim<'a>(path: &Path, names: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        // Whoever created the folder may remove it before it is locked here; then it is created again.
        let folder = loop {
            let made = make(path).map_err(|error| Error::io("creating", path, error))?;
            let mut folder = Self { path: path.to_path_buf(), lock: None, made };
            match Lock::take(path) {
                Err(_) if !path.exists() => continue,
                lock => folder.lock = Some(lock?),
            }
            break folder;
        };
        match names.into_iter().find(|name| path.join(name).symlink_metadata().is_ok()) {
            None => Ok(folder),
            Some(name) => Err(Error::settings(format!("{}: holds a `{name}` already", path.display()))
                .hint(format!("choose another folder with {}", option("out")))),
        }
    }

    /// Creates the default folder of a run: runs/NAME-TIME, followed by a number where that is taken.
    fn for_run(name: &str) -> Result<Self> {
        /// Leaves room in a file name for what follows.
        const LONGEST: usize = 60;
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
        let plain: String = name.chars().take(LONGEST).map(plain).collect();
        let base = Path::new("runs").join(format!("{plain}-{}", stamp(seconds)));
        let numbered = (2..).map(|number| PathBuf::from(format!("{}-{number}", base.display())));
        for path in std::iter::once(base.clone()).chain(numbered) {
            let made = make(&path).map_err(|error| Error::io("creating", &path, error))?;
            if !made.is_empty() {
                return Ok(Self { path, lock: None, made });
            }
        }
        unreachable!("numbers do not end")
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        self.lock = None;
        for folder in self.made.iter().rev() {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// The folder of a run: the one wanted, or a new one, which is removed if still empty when the [`NewFolder`] is dropped.
pub fn run_folder(wanted: Option<PathBuf>, name: &str) -> Result<(PathBuf, Option<NewFolder>)> {
    match wanted {
        Some(path) => Ok((path, None)),
        None => NewFolder::for_run(name).map(|new| (new.path.clone(), Some(new))),
    }
}

/// Creates a folder and its parents; returns the new ones, none if the folder existed.
fn make(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let above = path.ancestors().skip(1).take_while(|above| !above.as_os_str().is_empty() && !above.exists());
    let mut made = Vec::new();
    for folder in std::iter::once(path).chain(above).collect::<Vec<_>>().into_iter().rev() {
        match std::fs::create_dir(folder) {
            Ok(()) => made.push(folder.to_path_buf()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => made.clear(),
            Err(error) => return Err(error),
        }
    }
    Ok(made)
}

/// Seconds since 1970 as YYYYMMDD-HHMMSS, in UTC.
fn stamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, in eras of 400 years, so that leap days come last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_two_want_goes_to_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let ours = NewFolder::claim(&path, ["summary.json"]).unwrap();
        let error = NewFolder::claim(&path, ["summary.json"]).err().unwrap().to_string();
        assert!(error.contains("in use by process"), "{error}");
        drop(ours);
        assert!(!path.exists(), "nothing came of it");
        drop(NewFolder::claim(&path.join("deep/down"), []).unwrap());
        assert!(!path.exists() && folder.path().exists(), "nor of what was made above it");
        std::fs::create_dir(&path).unwrap();
        drop(NewFolder::claim(&path, []).unwrap());
        assert!(path.exists(), "somebody else made it");
        std::fs::write(path.join("summary.json"), "mine").unwrap();
        let error = NewFolder::claim(&path, ["summary.json"]).err().unwrap().to_string();
        assert!(error.contains("holds a `summary.json` already"), "{error}");
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
    }

    #[test]
    fn times_read_like_a_calendar() {
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_782_399), "20000228-235959");
        assert_eq!(stamp(951_782_400), "20000229-000000");
        assert_eq!(stamp(1_794_700_861), "20261115-000101");
    }
}
