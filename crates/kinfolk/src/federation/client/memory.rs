//! What a machine's clients remember between messages: their own models, by the asks that wrote them.
//!
//! Of every client the last two states are kept, as an answer may get lost and its order be repeated, and the last one
//! before the server's checkpoint, from which the run may go on. A message that comes late, when a newer one was answered, is
//! refused: it would take clients back. Where a machine has a folder for that, it is written there,
//! whole or not at all, before the answer leaves.

use super::host::{Host, State};
use crate::disk::write_privately;
use crate::error::{Error, ErrorKind, Result};
use crate::federation::secure::Seed;
use crate::federation::secure::machine::{Opened, Seat};
use crate::federation::wire::{self, RunMark, SiteMessage, SiteOrder};
use crate::modelfile::plain_name;
use crate::privacy::rows::Spent;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What the clients remember of one method of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Memory {
    run: String,
    session: u64,
    label: String,
    seed: u64,
    /// The newest ask of the session that was answered.
    asked: u64,
    pub(super) clients: Vec<Kept>,
    /// What each client has done while its rows were hidden; empty where none was.
    pub(super) spent: Vec<Spent>,
    pub(super) secure: Secure,
}

/// What a machine remembers of secure sums.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Secure {
    /// Its keys and its place in the run.
    pub(super) seat: Option<Seat>,
    /// Of a machine without files of its own: who it is, and what sums were opened of.
    pub(super) identity: Option<Seed>,
    pub(super) opened: Opened,
}

/// What one client remembers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// By ascending stamp.
    pub(super) states: Vec<State>,
    /// Saved by a client that is the user's own code, with the number of the ask.
    own: Vec<(u64, Vec<u8>)>,
}

impl Kept {
    /// What a client has that remembers this alone.
    pub(super) fn of(stamp: u64, state: Option<State>, own: Option<Vec<u8>>) -> Self {
        Self { states: state.into_iter().collect(), own: own.map(|own| (stamp, own)).into_iter().collect() }
    }

    pub(super) fn current(&self) -> Option<&State> {
        self.states.last()
    }

    pub(super) fn own(&self) -> Option<&[u8]> {
        self.own.last().map(|(_, own)| own.as_slice())
    }

    /// Forgets what was done after an ask.
    fn go_back(&mut self, stamp: u64) {
        self.states.retain(|state| state.stamp <= stamp);
        self.own.retain(|(own, _)| *own <= stamp);
    }

    /// Forgets what a client that is the user's own code saved at an ask, which is repeated; whether there was anything.
    fn undo_own(&mut self, stamp: u64) -> bool {
        let before = self.own.len();
        self.own.retain(|(own, _)| *own < stamp);
        self.own.len() < before
    }

    /// Takes note of the state after an ask.
    fn note(&mut self, stamp: u64, state: Option<State>, own: Option<Vec<u8>>, checkpoint: u64) {
        if let Some(state) = state {
            self.states.retain(|before| before.stamp < state.stamp);
            self.states.push(state);
        }
        if let Some(own) = own.filter(|own| Some(own.as_slice()) != self.own()) {
            self.own.retain(|(before, _)| *before < stamp);
            self.own.push((stamp, own));
        }
        prune(&mut self.states, checkpoint, |state| state.stamp);
        prune(&mut self.own, checkpoint, |(stamp, _)| *stamp);
    }
}

/// Keeps the last two, and the last one up to the checkpoint.
fn prune<T>(list: &mut Vec<T>, checkpoint: u64, stamp: impl Fn(&T) -> u64) {
    let last_two = list.len().saturating_sub(2);
    let before = list.iter().rposition(|item| stamp(item) <= checkpoint);
    let mut place = 0;
    list.retain(|_| {
        place += 1;
        place > last_two || Some(place - 1) == before
    });
}

impl Memory {
    fn empty(message: &SiteMessage) -> Self {
        let RunMark { name, session, .. } = &message.run;
        let (label, seed) = (message.label.clone(), message.data.seed);
        let (clients, spent, secure) = (Vec::new(), Vec::new(), Secure::default());
        Self { run: name.clone(), session: *session, label, seed, asked: 0, clients, spent, secure }
    }

    /// What is remembered for a message, from what was before. A run that goes on begins at the server's checkpoint.
    pub(super) fn of(before: Option<Self>, message: &SiteMessage) -> Result<Self> {
        let mut memory = match before.filter(|memory| memory.is_for(message)) {
            Some(memory) => memory,
            None => return Ok(Self::empty(message)),
        };
        memory.refuse_late(message)?;
        if memory.session != message.run.session {
            (memory.session, memory.asked) = (message.run.session, 0);
            memory.clients.iter_mut().for_each(|kept| kept.go_back(message.run.checkpoint));
        }
        Ok(memory)
    }

    fn is_for(&self, message: &SiteMessage) -> bool {
        (&self.run, &self.label, self.seed) == (&message.run.name, &message.label, message.data.seed)
    }

    /// Refuses a message that is older than one that was answered.
    fn refuse_late(&self, message: &SiteMessage) -> Result<()> {
        let session = message.run.session;
        let is_older = message.request.stamp().is_some_and(|stamp| session == self.session && stamp < self.asked);
        match is_older || session < self.session {
            true => Err(Error::federation("a message that comes late: a newer one was answered").open()),
            false => Ok(()),
        }
    }

    /// Gives every client the state that its orders name: of an answer that got lost, the one before. `repeated` is the number of the
    /// ask, where what clients of the user's own saved in it is undone.
    pub(super) fn recall(&mut self, host: &Host, orders: &[SiteOrder], repeated: Option<u64>) -> Result<()> {
        let is_new = self.clients.is_empty();
        self.clients.resize(host.clients().len(), Kept::default());
        let mut undone = vec![false; self.clients.len()];
        for order in orders {
            let stamp = order.work.needs().stamp;
            for ((place, kept), is_undone) in (0u32..).zip(self.clients.iter_mut()).zip(&mut undone) {
                if order.to.as_ref().is_some_and(|list| list.binary_search(&place).is_err()) {
                    continue;
                }
                if let Some(found) = kept.states.iter().position(|state| Some(state.stamp) == stamp) {
                    kept.states.truncate(found + 1);
                }
                *is_undone |= repeated.is_some_and(|ask| kept.undo_own(ask));
            }
        }
        host.restore(self.clients.iter().map(|kept| kept.current().cloned()).collect());
        for ((client, kept), is_undone) in host.clients().iter().zip(&self.clients).zip(undone) {
            match kept.own() {
                Some(own) => client.load(own)?,
                None if is_new || is_undone => client.begin_anew()?,
                None => {}
            }
        }
        Ok(())
    }

    /// Takes note of what clients remember after ask `stamp`.
    pub(super) fn note(&mut self, host: &Host, stamp: u64, checkpoint: u64) -> Result<()> {
        self.asked = self.asked.max(stamp);
        for ((client, state), kept) in host.clients().iter().zip(host.states()).zip(&mut self.clients) {
            kept.note(stamp, state, client.save()?, checkpoint);
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.clients.iter().all(|kept| kept.states.is_empty() && kept.own.is_empty())
            && self.spent.is_empty()
            && self.secure == Secure::default()
    }
}

/// What clients remember, in this process and perhaps in a folder.
pub struct Memories {
    folder: Option<PathBuf>,
    /// Most files in the folder.
    most: usize,
    /// That of the last message, and its file if it was written.
    last: Option<Memory>,
}

impl Memories {
    /// In this process alone.
    pub fn here() -> Self {
        Self { folder: None, most: 0, last: None }
    }

    /// Also in a folder, of at most this many files: one for every method and seed of a run. Older ones are removed.
    pub fn in_folder(folder: PathBuf, most: usize) -> Self {
        Self { folder: Some(folder), most: most.max(1), last: None }
    }

    pub(super) fn find(&mut self, message: &SiteMessage) -> Result<Memory> {
        let before = match self.last.take_if(|last| last.is_for(message)) {
            Some(last) => Some(last),
            None => self.path(&Memory::empty(message)).map(|path| read(&path)).transpose()?.flatten(),
        };
        let late = before.as_ref().filter(|before| before.is_for(message)).map(|before| before.refuse_late(message));
        if let Some(Err(late)) = late {
            self.last = before;
            return Err(late);
        }
        Memory::of(before, message)
    }

    pub(super) fn keep(&mut self, memory: Memory) -> Result<()> {
        if let Some(path) = self.path(&memory).filter(|path| !memory.is_empty() || path.exists()) {
            if !path.exists() {
                self.make_room(&path)?;
            }
            let bytes = wire::encode(&memory)?;
            let digest: [u8; DIGEST] = Sha256::digest(&bytes).into();
            write_privately(&path, &[&digest[..], &bytes].concat())?;
        }
        self.last = Some(memory);
        Ok(())
    }

    fn path(&self, memory: &Memory) -> Option<PathBuf> {
        let name = format!("{}-{}.{ENDING}", plain_name(&memory.label), memory.seed);
        Some(self.folder.as_ref()?.join(plain_name(&memory.run)).join(name))
    }

    /// Makes the folder of a file, and removes the oldest files where there are too many.
    fn make_room(&self, path: &Path) -> Result<()> {
        let Some((folder, own)) = self.folder.as_ref().zip(path.parent()) else { return Ok(()) };
        std::fs::create_dir_all(own).map_err(|error| Error::io("creating", own, error))?;
        let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
        for run in entries(folder) {
            for file in entries(&run).into_iter().filter(|file| file.extension().is_some_and(|it| it == ENDING)) {
                let written = file.metadata().and_then(|found| found.modified());
                files.push((written.unwrap_or(SystemTime::UNIX_EPOCH), file));
            }
        }
        files.sort();
        let surplus = (files.len() + 1).saturating_sub(self.most);
        for (_, file) in files.into_iter().take(surplus) {
            std::fs::remove_file(&file).map_err(|error| Error::io("removing", &file, error))?;
            // Succeeds where it was the last file of its run.
            let _ = file.parent().map(std::fs::remove_dir);
        }
        Ok(())
    }
}

const ENDING: &str = "state";
/// Bytes of the digest at the start of a file.
const DIGEST: usize = 32;

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// What a file holds; `None` where there is none.
fn read(path: &Path) -> Result<Option<Memory>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == NotFound => return Ok(None),
        Err(error) => return Err(Error::io("reading", path, error)),
    };
    match bytes.split_first_chunk::<DIGEST>() {
        Some((digest, content)) if digest[..] == Sha256::digest(content)[..] => wire::decode(content).map(Some),
        _ => {
            let message = format!("{}: its content does not match its digest", path.display());
            Err(Error::new(ErrorKind::Io, message).hint("remove it: its clients then begin without a memory"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::federation::wire::{DataOrder, Request};
    use crate::models::Packed;

    fn state(stamp: u64) -> State {
        State { stamp, vectors: Packed::F64(vec![stamp as f64]), numbers: Vec::new() }
    }

    fn stamps(kept: &Kept) -> Vec<u64> {
        kept.states.iter().map(|state| state.stamp).collect()
    }

    fn message(run: &RunMark, label: &str) -> SiteMessage {
        let data = DataOrder { source: "linear".into(), settings: String::new(), seed: 1 };
        let (run, request) = (run.clone(), Request::Hello { moments: false });
        SiteMessage { data, run, label: label.into(), schema: None, model: None, request }
    }

    #[test]
    fn the_last_two_states_are_kept_and_the_one_before_the_checkpoint() {
        let mut kept = Kept::default();
        for stamp in 1..=4 {
            kept.note(stamp, Some(state(stamp)), Some(vec![stamp as u8]), 0);
        }
        assert_eq!(stamps(&kept), [3, 4]);
        for stamp in 5..=9 {
            kept.note(stamp, Some(state(stamp)), Some(vec![stamp as u8]), 4);
        }
        assert_eq!(stamps(&kept), [4, 8, 9]);
        assert_eq!(kept.own(), Some(&[9][..]));
        kept.go_back(4);
        assert_eq!((stamps(&kept), kept.own()), (vec![4], Some(&[4][..])));
        // An order that is repeated replaces what it wrote.
        kept.note(5, Some(state(5)), None, u64::MAX);
        kept.note(5, Some(state(5)), None, u64::MAX);
        assert_eq!(stamps(&kept), [4, 5]);
    }

    #[test]
    fn a_folder_remembers_what_a_process_forgets() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Memories::in_folder(folder.path().join("states"), 2);
        let run = RunMark { name: "a run".into(), session: 1, checkpoint: 2 };
        let mut memory = open().find(&message(&run, "local")).unwrap();
        assert!(memory.clients.is_empty());
        memory.clients = vec![Kept::of(0, Some(state(2)), None), Kept::default()];
        memory.clients[0].note(3, Some(state(3)), None, 2);
        open().keep(memory.clone()).unwrap();
        assert_eq!(open().find(&message(&run, "local")).unwrap(), memory);
        assert!(open().find(&message(&run, "other")).unwrap().clients.is_empty());
        // The run goes on from ask 2.
        let found = open().find(&message(&run.again(2), "local")).unwrap();
        assert_eq!(stamps(&found.clients[0]), [2]);
        // No file for those who remember nothing, and no more than two.
        let mut nothing = Memory::empty(&message(&run, "nothing"));
        nothing.clients = vec![Kept::default()];
        open().keep(nothing).unwrap();
        for label in ["b", "c"] {
            open().keep(Memory { label: label.into(), ..memory.clone() }).unwrap();
        }
        let mut names: Vec<String> = entries(&entries(&folder.path().join("states"))[0])
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names.iter().any(|name| name.starts_with('c')), "{names:?}");
    }

    #[test]
    fn what_comes_late_is_refused_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut memories = Memories::in_folder(folder.path().to_path_buf(), 2);
        let run = RunMark { name: "a run".into(), session: 5, checkpoint: 2 };
        let work = |run: &RunMark, stamp: u64| {
            let (roll, phase, models, orders) =
                (String::new(), crate::federation::Phase::Train, Vec::new(), Vec::new());
            let hides = None;
            SiteMessage {
                request: Request::Work { roll, stamp, phase, models, orders, hides },
                ..message(run, "local")
            }
        };
        let mut memory = memories.find(&work(&run, 3)).unwrap();
        memory.clients = vec![Kept::of(0, Some(state(3)), None)];
        memory.asked = 3;
        memories.keep(memory.clone()).unwrap();
        let again = run.again(3);
        assert!(again.session > run.session);
        for is_new_process in [false, true] {
            if is_new_process {
                memories = Memories::in_folder(folder.path().to_path_buf(), 2);
            }
            let error = memories.find(&work(&run, 2)).unwrap_err();
            assert!(error.to_string().contains("comes late"), "{error}");
            // Once more, the next one, and where the run goes on.
            for stamp in [3, 4] {
                let found = memories.find(&work(&run, stamp)).unwrap();
                assert_eq!(found, memory);
                memories.keep(found).unwrap();
            }
        }
        let found = memories.find(&work(&again, 2)).unwrap();
        assert_eq!((found.asked, stamps(&found.clients[0])), (0, vec![3]));
        memories.keep(found).unwrap();
        // The server that died may still have something on its way.
        assert!(memories.find(&work(&run, 9)).unwrap_err().to_string().contains("comes late"));
        assert!(memories.find(&work(&again, 4)).is_ok());
    }

    #[test]
    fn what_a_client_of_the_users_own_saved_in_an_ask_is_undone_where_that_is_repeated() {
        let mut kept = Kept::default();
        for stamp in 1..=3 {
            kept.note(stamp, None, Some(vec![stamp as u8]), 1);
        }
        assert!(!kept.undo_own(4));
        assert!(kept.undo_own(3));
        assert_eq!(kept.own(), Some(&[2][..]));
    }

    #[test]
    fn a_broken_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut memories = Memories::in_folder(folder.path().to_path_buf(), 2);
        let run = RunMark { name: "a run".into(), session: 1, checkpoint: 2 };
        let mut memory = Memory::empty(&message(&run, "local"));
        memory.clients = vec![Kept::of(0, Some(state(2)), None)];
        let path = memories.path(&memory).unwrap();
        memories.keep(memory).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let mut afresh = Memories::in_folder(folder.path().to_path_buf(), 2);
        let error = afresh.find(&message(&run, "local")).unwrap_err();
        assert!(error.to_string().contains("does not match its digest"), "{error}");
    }
}
