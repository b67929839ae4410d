//! A machine's part in secure sums (`federation/secure/`): who it is over all runs, what its clients add, and of what sums were opened.
//! A machine with files of its own keeps the first and the last in these, for all runs; another in what it remembers of a run.

use super::memory::Secure;
use super::node::Node;
use crate::disk::write_privately;
use crate::error::{Error, ErrorKind, Result};
use crate::federation::sealed::{Blocks, SealedSum};
use crate::federation::secure::keys::Identity;
use crate::federation::secure::machine::{Opened, Part, Seat, SlotShape};
use crate::federation::secure::roster::{in_hex, of_hex};
use crate::federation::secure::{Card, Digest, Seed, Turn, digest_of, random};
use crate::federation::wire::{SiteMessage, SiteOrder};
use crate::models::Packed;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind::NotFound;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Node {
    /// Who this machine is, made where that is missing; `None` for one without a file for it.
    fn identity(&self) -> Result<Option<Identity>> {
        let Some(path) = &self.identity else { return Ok(None) };
        let unreadable = || {
            Error::new(ErrorKind::Io, format!("{}: not an identity, want 64 hexadecimal digits", path.display()))
                .hint("remove it to have another one made; other machines have to be told then")
        };
        match std::fs::read_to_string(path) {
            Ok(text) => of_hex(&text).map(|secret| Some(Identity::of(&secret))).ok_or_else(unreadable),
            Err(error) if error.kind() == NotFound => {
                let secret: Seed = random()?;
                if let Some(folder) = path.parent() {
                    std::fs::create_dir_all(folder).map_err(|error| Error::io("creating", folder, error))?;
                }
                write_privately(path, format!("{}\n", in_hex(&secret)).as_bytes())?;
                Ok(Some(Identity::of(&secret)))
            }
            Err(error) => Err(Error::io("reading", path, error)),
        }
    }

    /// The identity by which other machines know this one in secure sums, made where it is missing.
    pub fn public_identity(&self) -> Result<Option<String>> {
        Ok(self.identity()?.map(|identity| in_hex(&identity.public())))
    }

    /// Where it is written what sums were opened of.
    fn opened_file(&self) -> Option<PathBuf> {
        Some(self.account.as_ref()?.join("opened"))
    }
}

/// Bytes of an entry: what was done, and among whom.
const ENTRY: usize = 2 * size_of::<Digest>();

/// Of what sums were opened.
pub(super) fn opened(node: &Node, secure: &Secure) -> Result<Opened> {
    let Some(path) = node.opened_file() else { return Ok(secure.opened.clone()) };
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == NotFound => Vec::new(),
        Err(error) => return Err(Error::io("reading", &path, error)),
    };
    // One that was cut off was not followed by an answer.
    let (entries, _) = bytes.as_chunks::<ENTRY>();
    let entry = |entry: &[u8; ENTRY]| {
        let (work, among) = entry.split_at(size_of::<Digest>());
        Some((work.try_into().ok()?, among.try_into().ok()?))
    };
    Ok(Opened(entries.iter().filter_map(entry).collect()))
}

/// Keeps that, before shares leave. `before` were kept already.
pub(super) fn keep_opened(node: &Node, secure: &mut Secure, opened: Opened, before: usize) -> Result<()> {
    match node.opened_file() {
        None => secure.opened = opened,
        Some(path) => {
            let new: Vec<u8> =
                opened.0.iter().skip(before).flat_map(|(work, among)| [*work, *among].concat()).collect();
            append(&path, (before * ENTRY) as u64, &new).map_err(|error| Error::io("writing", &path, error))?;
        }
    }
    Ok(())
}

fn append(path: &Path, from: u64, new: &[u8]) -> std::io::Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let mut file: File = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    file.set_len(from)?;
    file.seek(SeekFrom::End(0))?;
    file.write_all(new)?;
    file.sync_all()
}

/// The digest of a run and of its session.
fn run_of(message: &SiteMessage) -> Result<Digest> {
    digest_of(&("secure sums", &message.run.name, message.run.session, &message.label, message.data.seed))
}

/// Takes a place in a run, once, and shows its keys.
pub(super) fn introduce(node: &Node, secure: &mut Secure, message: &SiteMessage, clients: usize) -> Result<Card> {
    let run = run_of(message)?;
    if let Some(seat) = secure.seat.as_ref().filter(|seat| seat.is_for(&run)) {
        return Ok(seat.card().clone());
    }
    let identity = match (node.identity()?, secure.identity) {
        (Some(identity), _) => identity,
        (None, Some(secret)) => Identity::of(&secret),
        (None, None) => Identity::of(secure.identity.insert(random()?)),
    };
    Ok(secure.seat.insert(Seat::take(run, &identity, clients as u64)?).card().clone())
}

/// The place that was taken in a run.
pub(super) fn seat<'s>(secure: &'s mut Secure, message: &SiteMessage) -> Result<&'s mut Seat> {
    let run = run_of(message)?;
    let none = || Error::federation("secure sums: this machine has no keys for this run, or has lost them");
    secure.seat.as_mut().filter(|seat| seat.is_for(&run)).ok_or_else(none)
}

/// The other machines of a turn, as an account names them.
pub(super) fn others(seat: &Seat, turn: &Turn) -> Result<Vec<(String, u64)>> {
    Ok(seat.others(turn)?.map(|(identity, clients)| (format!("machine {}", in_hex(identity)), clients)).collect())
}

/// The digest of each order that tells something: of its work, its models, the data and who does it, and of nothing else that a server
/// could change without changing the answer.
pub(super) fn works(message: &SiteMessage, models: &[(u32, Arc<Packed>)], orders: &[SiteOrder]) -> Result<Vec<Digest>> {
    let tells =
        |order: &&SiteOrder| super::policy::tells(&order.work) && order.to.as_ref().is_none_or(|to| !to.is_empty());
    let digest = |order: &SiteOrder| {
        let needs = order.work.needs().models;
        let models: Vec<_> = models.iter().filter(|(index, _)| needs.contains(&(*index as usize))).collect();
        digest_of(&(&message.data, &message.schema, &message.model, &order.to, &order.work, models))
    };
    orders.iter().filter(tells).map(digest).collect()
}

/// What the sums of some orders add to those over machines.
pub(super) fn part(sums: Vec<SealedSum>, blocks: &[Blocks]) -> Part {
    let clients = sums.iter().zip(blocks).flat_map(|(sum, blocks)| blocks.clients(sum)).collect();
    let shapes = blocks.iter().flat_map(|blocks| blocks.shapes()).collect();
    Part { numbers: sums.into_iter().flat_map(|sum| sum.0).collect(), clients, shapes }
}

/// The same of sums in which noise hides single clients: how many clients are in a slot is hidden with the rest, and all are opened.
pub(super) fn hidden_part(sums: Vec<SealedSum>) -> Part {
    let shapes: Vec<SlotShape> = sums.iter().map(|sum| SlotShape { length: sum.0.len(), tells: false }).collect();
    let clients = vec![0; shapes.len()];
    Part { numbers: sums.into_iter().flat_map(|sum| sum.0).collect(), clients, shapes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataShape;
    use crate::federation::client::node::Rows;

    fn node(folder: &Path) -> Node {
        let (account, identity) = (Some(folder.join("account")), Some(folder.join("place/identity")));
        Node { account, identity, ..Node::new(Rows::Given(Vec::new(), DataShape::default())) }
    }

    #[test]
    fn an_identity_is_made_once_and_is_nobody_elses_to_read() {
        let folder = tempfile::tempdir().unwrap();
        let node = node(folder.path());
        let first = node.public_identity().unwrap();
        assert_eq!(node.public_identity().unwrap(), first);
        let path = folder.path().join("place/identity");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert!(
            !first.unwrap().contains(String::from_utf8(std::fs::read(&path).unwrap()).unwrap().trim()),
            "the secret"
        );
        std::fs::write(&path, "something else").unwrap();
        assert!(node.public_identity().unwrap_err().to_string().contains("not an identity"));
        assert_eq!(Node { identity: None, ..node }.public_identity().unwrap(), None);
    }

    #[test]
    fn what_was_opened_outlasts_the_process_and_a_write_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let (node, mut secure) = (node(folder.path()), Secure::default());
        let entries = |count: u8| Opened((0..count).map(|number| ([number; 32], [number + 9; 32])).collect());
        assert_eq!(opened(&node, &secure).unwrap(), Opened::default());
        keep_opened(&node, &mut secure, entries(2), 0).unwrap();
        keep_opened(&node, &mut secure, entries(3), 2).unwrap();
        assert_eq!(opened(&node, &secure).unwrap(), entries(3));
        let path = folder.path().join("account/opened");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
        assert_eq!(opened(&node, &secure).unwrap(), entries(2));
        keep_opened(&node, &mut secure, entries(3), 2).unwrap();
        assert_eq!(opened(&node, &secure).unwrap(), entries(3));
        // Without files, it is among what is remembered of the run.
        let bare = Node { account: None, ..node };
        keep_opened(&bare, &mut secure, entries(1), 0).unwrap();
        assert_eq!(opened(&bare, &secure).unwrap(), entries(1));
    }
}
