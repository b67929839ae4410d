//! A folder for results.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A folder that holds none of the files about to be written. If nothing comes of it, it is gone again.
pub struct NewFolder {
    path: PathBuf,
    created: bool,
}

impl NewFolder {
    /// Makes the folder, or takes one that has nothing of these names in it.
    pub fn claim(path: &Path, names: &[&str]) -> Result<Self> {
        if let Some(name) = names.iter().find(|name| path.join(name).exists()) {
            return Err(Error::settings(format!("{}: holds a `{name}` already", path.display()))
                .hint("choose another folder with --out"));
        }
        let created = !path.exists();
        std::fs::create_dir_all(path).map_err(|error| Error::io("creating", path, error))?;
        // Whether it can be written to is better known now than after hours of work.
        let probe = path.join(".kinfolk-probe.tmp");
        std::fs::write(&probe, b"").map_err(|error| Error::io("writing to", path, error))?;
        std::fs::remove_file(&probe).map_err(|error| Error::io("writing to", path, error))?;
        Ok(Self { path: path.to_path_buf(), created })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for NewFolder {
    /// Only an empty folder can be removed this way.
    fn drop(&mut self) {
        if self.created {
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

/// Where a run of this name goes unless told otherwise: runs/NAME-TIME, with a number behind it where that is taken.
pub fn default_folder(name: &str) -> PathBuf {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let plain: String = name.chars().map(|c| if c.is_alphanumeric() || c == '-' { c } else { '-' }).collect();
    let base = format!("{plain}-{}", stamp(seconds));
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    let free = std::iter::once(base.clone()).chain(numbered).map(|name| Path::new("runs").join(name));
    free.into_iter().find(|path| !path.exists()).unwrap_or_else(|| Path::new("runs").join(&base))
}

/// Seconds since 1970 as YYYYMMDD-HHMMSS, in UTC.
fn stamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, in eras of 400 years: leap days then come last.
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
    use super::stamp;

    #[test]
    fn times_read_like_a_calendar() {
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_782_399), "20000228-235959");
        assert_eq!(stamp(951_782_400), "20000229-000000");
        assert_eq!(stamp(1_794_700_861), "20261115-000101");
    }
}
