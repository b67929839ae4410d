//! The key by which a SuperLink knows a node, and the headers that prove it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kinfolk::{Error, Result};
use p384::SecretKey;
use p384::ecdsa::signature::hazmat::PrehashSigner;
use p384::ecdsa::{Signature, SigningKey};
use p384::elliptic_curve::Generate;
use p384::pkcs8::{EncodePublicKey, LineEnding};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Flower accepts a signature that is 305 seconds old at most, and 5 seconds from the future. One is used again for so long.
const REUSE: Duration = Duration::from_secs(30);
/// As in `ssh-keygen -t ecdsa -b 384`.
const CURVE: &[u8] = b"nistp384";

/// A node's key.
pub struct Key {
    signing: SigningKey,
    public: String,
    signed: Mutex<Option<(Instant, Proof)>>,
}

/// The headers by which a request proves who sent it.
#[derive(Clone)]
pub struct Proof {
    /// The public key.
    pub public_key: String,
    /// When it was signed.
    pub timestamp: String,
    /// The signature of that.
    pub signature: String,
}

impl Key {
    /// A new one.
    pub fn generate() -> Result<Self> {
        Self::of(SecretKey::generate())
    }

    /// Reads a private key of the curve P-384, in OpenSSH's format or as PEM.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::io("reading the key", path, error))?;
        Self::parse(&text).map_err(|error| error.at(path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let secret = if text.contains("OPENSSH PRIVATE KEY") {
            parse_openssh(text)?
        } else {
            SecretKey::from_pem(text.trim()).map_err(|_| unusable("no private key of the curve P-384"))?
        };
        Self::of(secret)
    }

    fn of(secret: SecretKey) -> Result<Self> {
        let public = secret.public_key().to_public_key_pem(LineEnding::LF);
        let public = public.map_err(|error| unusable(&error.to_string()))?;
        Ok(Self { signing: secret.into(), public, signed: Mutex::default() })
    }

    /// The public key as PEM, which is what a SuperLink registers.
    pub fn public(&self) -> &str {
        &self.public
    }

    /// A short name for it.
    pub fn fingerprint(&self) -> String {
        Sha256::digest(self.public.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Headers that are valid now.
    pub fn proof(&self) -> Result<Proof> {
        let mut signed = self.signed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*signed {
            Some((since, proof)) if since.elapsed() < REUSE => Ok(proof.clone()),
            _ => {
                let proof = self.sign(timestamp(SystemTime::now()))?;
                *signed = Some((Instant::now(), proof.clone()));
                Ok(proof)
            }
        }
    }

    fn sign(&self, timestamp: String) -> Result<Proof> {
        // Flower signs a hash of SHA-256, which is not the one that usually goes with this curve.
        let hash = Sha256::digest(timestamp.as_bytes());
        let signature: Signature =
            self.signing.sign_prehash(&hash).map_err(|error| unusable(&format!("a signature failed: {error}")))?;
        Ok(Proof {
            public_key: STANDARD.encode(&self.public),
            timestamp,
            signature: STANDARD.encode(signature.to_der().as_bytes()),
        })
    }
}

fn unusable(found: &str) -> Error {
    Error::settings(format!("not a key of a node: got {found}, want what `ssh-keygen -t ecdsa -b 384 -N ''` makes"))
}

/// The private key in OpenSSH's format, version 1, if it is not encrypted.
fn parse_openssh(text: &str) -> Result<SecretKey> {
    let cut = || unusable("a file that ends too early");
    let lines: String = text.lines().map(str::trim).filter(|line| !line.starts_with('-')).collect();
    let bytes = STANDARD.decode(lines).map_err(|_| unusable("a file that is damaged"))?;
    let rest =
        bytes.strip_prefix(b"openssh-key-v1\0").ok_or_else(|| unusable("another version of OpenSSH's format"))?;
    let mut outer = Fields(rest);
    if outer.text().ok_or_else(cut)? != b"none" {
        return Err(unusable("a key behind a passphrase"));
    }
    // How it would be decrypted, how many keys there are, and the public one.
    let (_, _) = (outer.text().ok_or_else(cut)?, outer.text().ok_or_else(cut)?);
    outer.number().ok_or_else(cut)?;
    outer.text().ok_or_else(cut)?;
    let mut inner = Fields(outer.text().ok_or_else(cut)?);
    // Twice the same number, to tell a wrong passphrase by.
    inner.number().and_then(|_| inner.number()).ok_or_else(cut)?;
    let kind = inner.text().ok_or_else(cut)?;
    if !kind.ends_with(CURVE) || inner.text() != Some(CURVE) {
        return Err(unusable(&format!("a key of type {}", String::from_utf8_lossy(kind))));
    }
    inner.text().ok_or_else(cut)?;
    let number = inner.text().ok_or_else(cut)?;
    // A number without leading zeros, except one before a first bit that would read as a sign.
    let digits = number.strip_prefix(&[0]).unwrap_or(number);
    let mut full = [0; 48];
    let start = full.len().checked_sub(digits.len()).ok_or_else(|| unusable("too long a key"))?;
    full[start..].copy_from_slice(digits);
    SecretKey::from_slice(&full).map_err(|_| unusable("a key outside of its curve"))
}

/// Fields of OpenSSH's format: each begins with its length.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn number(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*first))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.number()? as usize;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }
}

/// Seconds since 1970.
pub fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// A time as ISO 8601 in UTC, to the microsecond.
fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:06}+00:00", since.subsec_micros())
}

/// The date that is so many days after 1970-01-01. Years begin in March here, so that a leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Seconds since 1970 of an HTTP date, such as `Wed, 18 Nov 2026 13:10:08 GMT`.
pub fn read_http_date(text: &str) -> Option<f64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_whitespace().skip(1);
    let day: u64 = words.next()?.parse().ok()?;
    let named = words.next()?;
    let month = MONTHS.iter().position(|name| *name == named)? as u64 + 1;
    let year: u64 = words.next()?.parse().ok().filter(|year| (1970..10_000).contains(year))?;
    let mut clock = words.next()?.split(':').map(|part| part.parse::<u64>().ok());
    let second = clock.next()?? * 3600 + clock.next()?? * 60 + clock.next()??;
    let (from_march, year) = if month > 2 { (month - 3, year) } else { (month + 9, year - 1) };
    let day_of_year = (153 * from_march + 2) / 5 + day.checked_sub(1)?;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + day_of_year;
    Some((days.checked_sub(719_468)? * 86_400 + second) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use p384::ecdsa::VerifyingKey;
    use p384::ecdsa::signature::hazmat::PrehashVerifier;

    const OPENSSH: &str = include_str!("../golden/key");

    #[test]
    fn keys_are_read_in_the_formats_that_people_have() {
        for text in [OPENSSH, include_str!("../golden/key.pkcs8")] {
            assert_eq!(Key::parse(text).unwrap().public(), include_str!("../golden/key.pem"));
        }
        assert_eq!(Key::parse(OPENSSH).unwrap().fingerprint().len(), 16);
    }

    #[test]
    fn other_keys_are_refused_with_a_word_on_what_they_are() {
        let cases = [
            (include_str!("../golden/key.locked"), "behind a passphrase"),
            (include_str!("../golden/key.p256"), "of type ecdsa-sha2-nistp256"),
            (include_str!("../golden/key.pem"), "no private key"),
            ("", "no private key"),
            ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", "another version"),
            ("-----BEGIN OPENSSH PRIVATE KEY-----\n?\n", "damaged"),
        ];
        for (text, wanted) in cases {
            let said = Key::parse(text).err().unwrap().to_string();
            assert!(said.contains(wanted) && said.contains("ssh-keygen -t ecdsa -b 384"), "{said}");
        }
        for end in 0..OPENSSH.len() - 40 {
            assert!(Key::parse(&OPENSSH[..end]).is_err(), "the first {end} bytes of a key");
        }
    }

    #[test]
    fn signatures_are_those_that_flower_verifies() {
        let key = Key::parse(OPENSSH).unwrap();
        let at = "2026-11-18T13:10:08.471234+00:00";
        let verifying = VerifyingKey::from(&key.signing);
        let hash = Sha256::digest(at.as_bytes());
        // One by the library that Flower verifies with, and one of ours.
        let theirs = include_str!("../golden/signature").trim();
        let theirs: Vec<u8> =
            (0..theirs.len() / 2).map(|at| u8::from_str_radix(&theirs[2 * at..2 * at + 2], 16).unwrap()).collect();
        let ours = STANDARD.decode(key.sign(at.into()).unwrap().signature).unwrap();
        for signature in [theirs, ours] {
            verifying.verify_prehash(&hash, &Signature::from_der(&signature).unwrap()).unwrap();
        }
    }

    #[test]
    fn a_signature_is_used_again_while_it_is_young() {
        let key = Key::generate().unwrap();
        let (first, second) = (key.proof().unwrap(), key.proof().unwrap());
        assert_eq!(first.timestamp, second.timestamp);
        assert_eq!(STANDARD.decode(first.public_key).unwrap(), key.public().as_bytes());
        assert_ne!(key.public(), Key::generate().unwrap().public());
    }

    #[test]
    fn times_are_written_and_read_over_leap_days() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000+00:00"),
            (951_782_399, "2000-02-28T23:59:59.000000+00:00"),
            (951_782_400, "2000-02-29T00:00:00.000000+00:00"),
            (1_795_007_408, "2026-11-18T13:10:08.000000+00:00"),
            (4_107_542_400, "2100-03-01T00:00:00.000000+00:00"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0.0)),
            ("Tue, 29 Feb 2000 00:00:00 GMT", Some(951_782_400.0)),
            ("Wed, 18 Nov 2026 13:10:08 GMT", Some(1_795_007_408.0)),
            ("Mon, 01 Mar 2100 00:00:00 GMT", Some(4_107_542_400.0)),
            ("yesterday", None),
            ("Wed, 18 Nov 0000 13:10:08 GMT", None),
            ("Wed, 00 Jan 1970 13:10:08 GMT", None),
            ("Wed, 18 Nov 2026 13:10 GMT", None),
        ] {
            assert_eq!(read_http_date(text), seconds, "{text}");
        }
    }
}
