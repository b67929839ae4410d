//! Requests to a SuperLink.

use crate::key::{Key, read_http_date, seconds};
use crate::{Connection, FIRST_SUPPORTED, LAST_SUPPORTED, Security};
use kinfolk::{Error, ErrorKind, Result};
use prost::Message;
use std::io::Read;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

const MEDIA_TYPE: &str = "application/protobuf";
/// For a connection, and for every pause in a transfer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a refusal that are looked at.
const LONGEST_REFUSAL: u64 = 1 << 16;
/// Bytes in which a SuperLink's description of itself has its version.
const VERSION_WITHIN: u64 = 1024;
/// Flower refuses what was signed earlier or later than this, in seconds by the SuperLink's clock.
const CLOCKS: std::ops::Range<f64> = -305.0..5.0;

/// Numbers that Flower gave its refusals.
mod codes {
    pub const REGISTRATION_DISABLED: u64 = 2001;
    pub const ACTIVATION_FAILED: u64 = 2004;
    pub const RUN_NOT_RUNNING: u64 = 2007;
}

/// Why a request got no answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Nobody is there, or nobody has time; it may pass.
    Unreachable(String),
    /// What is there does not prove to be the SuperLink.
    Untrusted(String),
    /// The proof of who we are was refused. The seconds by which this machine's clock is ahead, where that is known.
    Unauthorised(Option<f64>),
    /// The run that it was about has ended.
    RunEnded,
    /// Something else was refused.
    Refused {
        /// Of HTTP.
        status: u16,
        /// Flower's own.
        code: Option<u64>,
        /// As the SuperLink put it.
        detail: String,
    },
    /// This version of Flower is not supported.
    Version(String),
}

/// A connection to a SuperLink.
pub struct Link {
    address: String,
    base: String,
    agent: Agent,
    pub key: Key,
    /// The version of Flower at the other end; versions must agree.
    version: Mutex<String>,
    /// Of an answer.
    most_bytes: u64,
}

impl Link {
    /// Prepares a connection. Nothing is sent yet.
    pub fn new(connection: &Connection, most_bytes: usize) -> Result<Self> {
        let address = connection.superlink.trim().to_string();
        let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !host.contains('/'));
        if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
            let message = format!("superlink: got `{address}`, want a host and a port, such as 10.0.0.1:8000");
            return Err(Error::settings(message));
        }
        let (scheme, tls) = match &connection.security {
            Security::Insecure => ("http", TlsConfig::builder()),
            Security::PublicAuthorities => ("https", TlsConfig::builder().root_certs(RootCerts::WebPki)),
            Security::Certificates(path) => {
                ("https", TlsConfig::builder().root_certs(RootCerts::new_with_certs(&read_certificates(path)?)))
            }
        };
        let key = match &connection.key {
            Some(path) => Key::read(path)?,
            None => Key::generate()?,
        };
        let agent = Agent::config_builder()
            .tls_config(tls.build())
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .timeout_per_read(Some(PATIENCE))
            .timeout_per_write(Some(PATIENCE))
            // A SuperLink closes what is idle for five seconds.
            .max_idle_age(Duration::from_secs(4))
            .user_agent(concat!("kinfolk-node/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        let base = format!("{scheme}://{address}");
        let version = Mutex::new(format!("{LAST_SUPPORTED}.0"));
        Ok(Self { address, base, agent, key, version, most_bytes: most_bytes as u64 })
    }

    /// Where the SuperLink is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request and waits for the answer.
    pub fn call<Answer: Message + Default>(&self, path: &str, request: &impl Message) -> Result<Answer, Fault> {
        let proof = self.key.proof().map_err(|error| Fault::Unreachable(error.to_string()))?;
        let version = self.version.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let response = self
            .agent
            .post(format!("{}/v1/fleet/{path}", self.base))
            .header("content-type", MEDIA_TYPE)
            .header("flwr-public-key", &proof.public_key)
            .header("flwr-timestamp", &proof.timestamp)
            .header("flwr-signature", &proof.signature)
            .header("flwr-package-name", "flwr")
            .header("flwr-package-version", &version)
            .header("flwr-component-name", "SuperNode")
            .send(request.encode_to_vec())
            .map_err(unanswered)?;
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        if status != 200 {
            let date = head.headers.get("date").and_then(|date| date.to_str().ok());
            let mut text = Vec::new();
            let _ = body.into_with_config().limit(LONGEST_REFUSAL).reader().read_to_end(&mut text);
            return Err(refusal(status, &text, date.and_then(read_http_date)));
        }
        // A little more than the content: the answer has a frame.
        let bytes = body.into_with_config().limit(self.most_bytes.saturating_add(1 << 16)).read_to_vec();
        let bytes = bytes.map_err(unanswered)?;
        Answer::decode(&*bytes).map_err(|error| Fault::Refused {
            status,
            code: None,
            detail: format!("an answer that cannot be read ({error})"),
        })
    }

    /// Asks for the version of Flower at the other end, and says it, where it is one of those that this node speaks. A proxy may
    /// let nothing through but the Fleet API: then it is not known.
    pub fn meet(&self) -> Result<Option<String>, Fault> {
        let response = self.agent.get(format!("{}/openapi.json", self.base)).call().map_err(unanswered)?;
        let status = response.status().as_u16();
        if (502..=504).contains(&status) {
            return Err(Fault::Unreachable(format!("it answers with HTTP status {status}")));
        }
        let mut text = Vec::new();
        let _ = response.into_body().into_reader().take(VERSION_WITHIN).read_to_end(&mut text);
        let Some(version) = version_in(&String::from_utf8_lossy(&text)).filter(|_| status == 200) else {
            return Ok(None);
        };
        if !is_supported(&version) {
            return Err(Fault::Version(version));
        }
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = version.clone();
        Ok(Some(version))
    }

    /// What went wrong and what to do, in words.
    pub fn explain(&self, fault: &Fault, has_key: bool) -> Error {
        let at = &self.address;
        let error = |kind, text: String| Error::new(kind, format!("SuperLink {at}: {text}"));
        match fault {
            Fault::Unreachable(why) => error(ErrorKind::Federation, format!("cannot be reached: {why}")),
            Fault::Untrusted(why) => error(ErrorKind::Settings, format!("no trusted connection: {why}"))
                .hint("give with --root-certificates the certificate of the authority that signed the SuperLink's, which must name \
                       the host as it is given here; --insecure is for a SuperLink that was started so"),
            Fault::Unauthorised(Some(ahead)) if !CLOCKS.contains(ahead) => {
                let (seconds, which) = (ahead.abs(), if *ahead > 0.0 { "ahead of" } else { "behind" });
                error(ErrorKind::Settings, format!("this machine's clock is {seconds:.0} seconds {which} the SuperLink's"))
                    .hint("set the clocks; Flower accepts 5 seconds ahead and 305 seconds behind")
            }
            Fault::Unauthorised(_) => error(ErrorKind::Settings, "it does not know this node any more".into())
                .hint("register its key again, if the SuperLink was started anew without --database"),
            Fault::Refused { code: Some(codes::ACTIVATION_FAILED), .. } if has_key => {
                error(ErrorKind::Settings, "it does not let this node in".into()).hint(
                    "its key is not registered there (flwr supernode register KEY.pub CONNECTION), or another node with \
                     this key is connected, or died without a word less than a minute ago",
                )
            }
            Fault::Refused { code: Some(codes::REGISTRATION_DISABLED), .. } => {
                error(ErrorKind::Settings, "it lets in nobody without a registered key".into())
                    .hint("give the key with --key, and register it there: flwr supernode register KEY.pub CONNECTION")
            }
            Fault::Refused { status: 404 | 405, .. } => {
                error(ErrorKind::Settings, "there is no Fleet API; it is no SuperLink, or one of an older version".into())
            }
            Fault::Refused { status, detail, .. } => {
                error(ErrorKind::Federation, format!("HTTP status {status}: {detail}"))
            }
            Fault::RunEnded => error(ErrorKind::Federation, "the run has ended".into()),
            Fault::Version(version) => error(ErrorKind::Unsupported, format!("got Flower {version}"))
                .hint(format!("this node speaks with Flower {FIRST_SUPPORTED} to {LAST_SUPPORTED}")),
        }
    }
}

fn read_certificates(path: &Path) -> Result<Vec<Certificate<'static>>> {
    let text = std::fs::read(path).map_err(|error| Error::io("reading certificates", path, error))?;
    let found: Vec<Certificate> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    match found.is_empty() {
        true => Err(Error::settings(format!("{}: got no certificate, want one or more in PEM", path.display()))),
        false => Ok(found),
    }
}

/// Why there is no answer at all.
fn unanswered(error: ureq::Error) -> Fault {
    match error {
        ureq::Error::Rustls(error) => Fault::Untrusted(error.to_string()),
        ureq::Error::Tls(error) => Fault::Untrusted(error.into()),
        // What TLS finds wrong while it reads.
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            Fault::Untrusted(error.to_string())
        }
        ureq::Error::Io(error) => Fault::Unreachable(error.to_string()),
        ureq::Error::HostNotFound => Fault::Unreachable("no such host".into()),
        error => Fault::Unreachable(error.to_string()),
    }
}

pub(crate) fn refusal(status: u16, text: &[u8], date: Option<f64>) -> Fault {
    #[derive(serde::Deserialize, Default)]
    struct Refusal {
        code: Option<u64>,
        detail: Option<String>,
    }
    let told: Refusal = serde_json::from_slice(text).unwrap_or_default();
    match (status, told.code) {
        (401, _) => Fault::Unauthorised(date.map(|date| seconds(SystemTime::now()) - date)),
        (502..=504, _) => Fault::Unreachable(format!("it answers with HTTP status {status}")),
        (_, Some(codes::RUN_NOT_RUNNING)) => Fault::RunEnded,
        (_, code) => Fault::Refused { status, code, detail: told.detail.unwrap_or_default() },
    }
}

/// The version in the beginning of what a SuperLink says of itself.
pub(crate) fn version_in(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("\"version\":\"")?;
    rest.split_once('"').map(|(version, _)| version.to_string())
}

pub(crate) fn is_supported(version: &str) -> bool {
    let number = |text: &str| -> Option<(u32, u32)> {
        let mut parts = text.split('.').map(|part| part.parse().ok());
        Some((parts.next()??, parts.next()??))
    };
    number(version).is_some_and(|found| (number(FIRST_SUPPORTED)..=number(LAST_SUPPORTED)).contains(&Some(found)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(superlink: &str) -> Result<Link> {
        Link::new(&Connection { superlink: superlink.into(), security: Security::Insecure, key: None }, 1)
    }

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for superlink in ["10.0.0.1", "10.0.0.1:port", ":8000", "http://10.0.0.1:8000", "10.0.0.1:70000"] {
            let said = link(superlink).err().unwrap().to_string();
            assert!(said.contains(&format!("got `{superlink}`, want a host and a port")), "{said}");
        }
        assert_eq!(link(" [::1]:8000 ").unwrap().address(), "[::1]:8000");
    }

    #[test]
    fn versions_that_are_spoken() {
        for version in ["1.40.0", "1.41.2", "1.42.0.dev1"] {
            assert!(is_supported(version), "{version}");
        }
        for version in ["1.39.9", "1.43.0", "2.41.0", "1", "", "one.two"] {
            assert!(!is_supported(version), "{version}");
        }
        let said = r#"{"openapi":"3.1.0","info":{"title":"SuperLink API","version":"1.41.0"},"paths""#;
        assert_eq!(version_in(said).as_deref(), Some("1.41.0"));
        assert_eq!(version_in("<html>"), None);
    }

    #[test]
    fn refusals_say_what_to_do() {
        let link = link("there:8000").unwrap();
        let now = seconds(SystemTime::now());
        let cases = [
            (refusal(401, b"", Some(now - 600.0)), "clock is 600 seconds ahead of the SuperLink's"),
            (refusal(401, b"", Some(now + 600.0)), "clock is 600 seconds behind the SuperLink's"),
            (refusal(401, b"", Some(now)), "does not know this node any more"),
            (refusal(401, b"", None), "does not know this node any more"),
            (
                refusal(412, br#"{"code":2004,"detail":"Failed to activate SuperNode."}"#, None),
                "flwr supernode register",
            ),
            (refusal(412, br#"{"code":2001}"#, None), "give the key with --key"),
            (refusal(403, br#"{"code":2007}"#, None), "the run has ended"),
            (refusal(404, b"not json", None), "there is no Fleet API"),
            (refusal(418, br#"{"detail":"a teapot"}"#, None), "HTTP status 418: a teapot"),
            (refusal(503, b"", None), "cannot be reached: it answers with HTTP status 503"),
            (Fault::Version("1.39.0".into()), "got Flower 1.39.0"),
        ];
        for (fault, wanted) in cases {
            let said = link.explain(&fault, true).to_string();
            assert!(said.starts_with("SuperLink there:8000: ") && said.contains(wanted), "{said}");
        }
    }
}
