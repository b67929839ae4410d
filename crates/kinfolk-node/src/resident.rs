//! The life of a node: it connects, asks for messages again and again, answers them, and says goodbye.

use crate::key::seconds;
use crate::link::{Fault, Link};
use crate::messages::{
    Activate, ConfirmReceived, Heartbeat, HeartbeatAnswer, Message, MessageError, Metadata, Node, NodeId, Nothing,
    ObjectTree, PullMessages, PullObject, PulledMessages, PulledObject, PushMessages, PushObject, PushedMessages,
    PushedObject, Register,
};
use crate::objects::{Contents, contents, id_of, pack, part_of, records_of};
use crate::store::Store;
use crate::{Connection, Security};
use kinfolk::federation::client::site::Site;
use kinfolk::{Error, Result};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// A node that gives no sign for twice as long counts as gone. Flower allows no less.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How often a sign is given, a little earlier than it must be.
const BETWEEN_HEARTBEATS: Duration = Duration::from_secs(8);
/// How often a node asks for messages: at once after one; then seldomer the longer there is none, by a share of that time; and
/// never so often that the SuperLink would do nothing else.
const POLL: Duration = Duration::from_millis(100);
const SLOWEST_POLL: Duration = Duration::from_secs(1);
const SHARE_OF_WAIT: u32 = 20;
const TIMES_LATENCY: u32 = 2;
/// Between two attempts to reach a SuperLink.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(10);
/// How long an answer is offered to a SuperLink that cannot be reached.
const OFFER: Duration = Duration::from_secs(120);
/// How many objects are sent or fetched side by side.
const SIDE_BY_SIDE: usize = 3;
/// The types of Kinfolk's messages end so.
const OURS: &str = ".kinfolk";
/// Flower's number for an exception in the app of a client.
const APP_FAILED: i64 = 2;
/// Its number for a key that is registered already.
const KEY_IN_USE: u64 = 23;
/// Of an error, so many characters are told.
const LONGEST_REASON: usize = 2000;

/// Where a node's log goes, line by line.
pub type Say<'a> = &'a (dyn Fn(&str) + Sync);

/// Answers Kinfolk's messages for the clients of a site until `stop` is set. A node with a key of its own keeps what has to last in a
/// folder below `place`. A fault at the start is an error; what happens later is waited out.
pub fn serve(connection: &Connection, mut site: Site, place: &Path, stop: &AtomicBool, say: Say) -> Result<()> {
    let has_key = connection.key.is_some();
    if has_key && matches!(connection.security, Security::Insecure) {
        let hint = "start the SuperLink with certificates, and name theirs with --root-certificates";
        return Err(Error::settings("key: Flower takes keys over encrypted connections only").hint(hint));
    }
    let most_bytes = site.node().limits.message_bytes;
    let link = Link::new(connection, most_bytes)?;
    let mut store = match has_key {
        true => Store::open(&place.join(link.key.fingerprint()), site.node().limits.kept)?,
        false => Store::in_memory(),
    };
    let post = Post { link, has_key, most_bytes, stop, say, is_away: AtomicBool::new(false) };
    let mut before = None;
    while let Some(number) = post.connect(&store, before)? {
        before = Some(number);
        let node = Some(Node { id: number });
        let is_over = AtomicBool::new(false);
        // Signs of life are given while an answer is computed.
        std::thread::scope(|scope| {
            scope.spawn(|| post.show_life(number, &is_over));
            post.listen(node, &mut site, &mut store);
            is_over.store(true, Ordering::Relaxed);
        });
    }
    Ok(())
}

/// A node's way to its SuperLink.
struct Post<'a> {
    link: Link,
    has_key: bool,
    most_bytes: usize,
    stop: &'a AtomicBool,
    say: Say<'a>,
    /// Whether it was said that the SuperLink cannot be reached.
    is_away: AtomicBool,
}

impl Post<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits, unless the node is stopped.
    fn wait(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_stopped() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(POLL));
        }
    }

    /// Says that the SuperLink cannot be reached, once.
    fn miss(&self, fault: &Fault) {
        if !self.is_away.swap(true, Ordering::Relaxed) {
            (self.say)(&format!("{}; trying again", self.link.explain(fault, self.has_key)));
        }
    }

    fn is_back(&self) {
        if self.is_away.swap(false, Ordering::Relaxed) {
            (self.say)(&format!("SuperLink {}: is there again", self.link.address()));
        }
    }

    /// Connects: the node's number at the SuperLink, or `None` where the node was stopped. A new node that is refused is an error; one
    /// that had a number before waits until it is let in again.
    fn connect(&self, store: &Store, before: Option<u64>) -> Result<Option<u64>> {
        let mut pause = FIRST_RETRY;
        let mut said = String::new();
        while !self.is_stopped() {
            let fault = match self.try_to_connect(before.or_else(|| store.number(self.link.address()))) {
                Ok((number, version)) => {
                    self.is_away.store(false, Ordering::Relaxed);
                    let version = version.unwrap_or_else(|| "of a version that it does not tell".into());
                    let address = self.link.address();
                    (self.say)(&format!("connected to SuperLink {address}, Flower {version}, as node {number}"));
                    store.keep_number(address, number)?;
                    return Ok(Some(number));
                }
                Err(fault) => fault,
            };
            let error = self.link.explain(&fault, self.has_key);
            if before.is_none() && !matches!(fault, Fault::Unreachable(_)) {
                return Err(error);
            }
            if said != error.to_string() {
                said = error.to_string();
                (self.say)(&format!("{said}; trying again"));
            }
            self.wait(pause);
            pause = (2 * pause).min(LAST_RETRY);
        }
        Ok(None)
    }

    fn try_to_connect(&self, before: Option<u64>) -> Result<(u64, Option<String>), Fault> {
        let version = self.link.meet()?;
        let public_key = self.link.key.public().as_bytes().to_vec();
        // One that died without a word counts as connected for a while, and such a one is not activated.
        if let Some(id) = before
            && let Err(fault @ Fault::Unreachable(_)) = self.link.call::<Nothing>("deactivate-node", &NodeId { id })
        {
            return Err(fault);
        }
        if !self.has_key {
            // A key that is registered already is the one that we registered before.
            match self.link.call::<NodeId>("register-node", &Register { public_key: public_key.clone() }) {
                Err(Fault::Refused { code: Some(KEY_IN_USE), .. }) | Ok(_) => {}
                Err(fault) => return Err(fault),
            }
        }
        let interval = HEARTBEAT.as_secs_f64();
        let NodeId { id } = self.link.call("activate-node", &Activate { public_key, heartbeat_interval: interval })?;
        Ok((id, version))
    }

    /// Tells the SuperLink from time to time that the node is there, and goodbye where it is stopped.
    fn show_life(&self, number: u64, is_over: &AtomicBool) {
        let mut told = Instant::now();
        let heartbeat = Heartbeat { node: Some(Node { id: number }), interval: HEARTBEAT.as_secs_f64() };
        while !is_over.load(Ordering::Relaxed) && !self.is_stopped() {
            std::thread::sleep(POLL);
            if told.elapsed() >= BETWEEN_HEARTBEATS {
                told = Instant::now();
                // Whoever asks for messages notices whether anything is wrong.
                let _ = self.link.call::<HeartbeatAnswer>("send-node-heartbeat", &heartbeat);
            }
        }
        if self.is_stopped() {
            // Where nobody hears it, nobody waits for it either.
            let _ = self.link.call::<Nothing>("deactivate-node", &NodeId { id: number });
            if !self.has_key {
                let _ = self.link.call::<Nothing>("unregister-node", &NodeId { id: number });
            }
        }
    }

    /// Asks for messages and answers them, until the node is stopped, or did not hear what the SuperLink said. That may have been a
    /// message, which is told once: a node that connects again is asked again.
    fn listen(&self, node: Option<Node>, site: &mut Site, store: &mut Store) {
        let (mut heard, mut answered) = (Instant::now(), None);
        while !self.is_stopped() {
            let asked = Instant::now();
            let pulled = self.link.call::<PulledMessages>("pull-messages", &PullMessages { node });
            let latency = asked.elapsed();
            let pause = match pulled {
                Ok(pulled) => {
                    self.is_back();
                    if let (Some(message), Some(tree)) = (pulled.messages.into_iter().next(), pulled.trees.first()) {
                        self.answer(node, &message, tree, site, store);
                        message.metadata.iter().for_each(|metadata| self.confirm(node, &mut answered, metadata));
                        heard = Instant::now();
                    }
                    POLL.max(heard.elapsed() / SHARE_OF_WAIT).max(TIMES_LATENCY * latency).min(SLOWEST_POLL)
                }
                Err(Fault::RunEnded) => POLL,
                Err(Fault::Unreachable(_)) => return self.wait(FIRST_RETRY),
                Err(fault) => {
                    (self.say)(&format!("{}; connecting again", self.link.explain(&fault, self.has_key)));
                    return;
                }
            };
            self.wait(pause);
        }
    }

    /// Answers a message, and says what it was and what it cost.
    fn answer(&self, node: Option<Node>, message: &Message, tree: &ObjectTree, site: &mut Site, store: &mut Store) {
        let began = Instant::now();
        let Some(metadata) = &message.metadata else { return };
        let run = metadata.run;
        let fetched = match self.fetch(node, metadata, tree) {
            Ok(fetched) => fetched,
            Err(fault) => return self.give_up(run, "fetching a message", &fault),
        };
        let (received, fetching) = (fetched.as_ref().map_or(0, Vec::len), began.elapsed());
        let answer = fetched.and_then(|bytes| site.answer_from(&bytes, &mut store.memories));
        let worked = began.elapsed() - fetching;
        for line in site.take_log() {
            (self.say)(&format!("run {run}: {line}"));
        }
        let (about, sent) = match &answer {
            Ok(reply) => (site.about().to_string(), reply.len()),
            Err(error) => (format!("refused: {error}"), 0),
        };
        let answer = answer.as_deref().map_err(|error| MessageError {
            code: APP_FAILED,
            reason: error.told().chars().take(LONGEST_REASON).collect(),
        });
        if let Err(fault) = self.deliver(node, metadata, answer, worked) {
            return self.give_up(run, "sending an answer", &fault);
        }
        let kind = metadata.message_type.trim_end_matches(OURS);
        let milliseconds = began.elapsed().as_millis();
        (self.say)(&format!(
            "run {run}: {kind}, {about}; {received} bytes in, {sent} out, {milliseconds} ms ({} of work)",
            worked.as_millis(),
        ));
    }

    /// Lets the SuperLink forget the message before this one. Of this one itself parts may still be on their way there, although those
    /// that matter have arrived, and what it has forgotten it would refuse, and with that the server's whole question. Before its next
    /// question a server has sent all of the last.
    fn confirm(&self, node: Option<Node>, answered: &mut Option<Metadata>, now: &Metadata) {
        if let Some(before) = answered.replace(now.clone()) {
            let confirm = ConfirmReceived { node, run: before.run, id: before.message_id };
            // One that is not forgotten costs a little memory there, until its run ends.
            let _ = self.link.call::<Nothing>("confirm-message-received", &confirm);
        }
    }

    fn give_up(&self, run: u64, doing: &str, fault: &Fault) {
        let why = match fault {
            Fault::RunEnded => "it has ended".to_string(),
            fault => self.link.explain(fault, self.has_key).to_string(),
        };
        (self.say)(&format!("run {run}: {doing} failed: {why}"));
    }

    /// The bytes of a message, or why it is not answered.
    fn fetch(&self, node: Option<Node>, metadata: &Metadata, tree: &ObjectTree) -> Result<Result<Vec<u8>>, Fault> {
        if !metadata.message_type.ends_with(OURS) {
            let found = &metadata.message_type;
            let message = format!("this node answers Kinfolk's messages and nothing else, got one of type {found}");
            return Ok(Err(Error::federation(message)));
        }
        let object = |id: &String| -> Result<Vec<u8>, Fault> { self.pull(node, metadata.run, id) };
        let records = match contents(tree) {
            Ok(Contents::Records(records)) => Ok(records),
            Ok(Contents::Dict(id)) => records_of(&object(&id)?),
            Err(error) => Err(error),
        };
        let records = match records {
            Ok(records) => records,
            Err(error) => return Ok(Err(error)),
        };
        let mut bytes = Vec::new();
        for some in records.chunks(SIDE_BY_SIDE) {
            for record in side_by_side(some, object)? {
                match part_of(&record) {
                    Ok(part) => bytes.extend(part),
                    Err(error) => return Ok(Err(error)),
                }
            }
            if bytes.len() > self.most_bytes {
                let message = format!(
                    "bytes in a message: got more than {}, this machine allows no more (node.limits.message_bytes)",
                    self.most_bytes
                );
                return Ok(Err(Error::federation(message)));
            }
        }
        Ok(Ok(bytes))
    }

    /// Fetches an object, and waits for it where it is still on its way.
    fn pull(&self, node: Option<Node>, run: u64, id: &str) -> Result<Vec<u8>, Fault> {
        let broken = |detail: &str| Fault::Refused { status: 200, code: None, detail: format!("object {id} {detail}") };
        let request = PullObject { node, run, id: id.into() };
        let until = Instant::now() + OFFER;
        loop {
            let found: PulledObject = self.insist("pull-object", &request)?;
            match arrived(found, id).map_err(broken)? {
                Some(content) => return Ok(content),
                None if Instant::now() < until && !self.is_stopped() => self.wait(POLL),
                None => return Err(broken("did not arrive")),
            }
        }
    }

    /// Sends an answer. The message comes first, because objects are taken for messages only; a server that asks in between waits.
    fn deliver(
        &self,
        node: Option<Node>,
        to: &Metadata,
        answer: Result<&[u8], MessageError>,
        worked: Duration,
    ) -> Result<(), Fault> {
        let parcel = pack(to.reply(seconds(SystemTime::now())), answer);
        let push = PushMessages {
            node,
            messages: vec![parcel.message],
            trees: vec![parcel.tree],
            seconds: vec![worked.as_secs_f64()],
        };
        let PushedMessages { objects_to_push, session } = self.insist("push-messages", &push)?;
        let objects: Vec<(String, Vec<u8>)> =
            parcel.objects.into_iter().filter(|(id, _)| objects_to_push.contains(id)).collect();
        side_by_side(&objects, |(id, content)| {
            let (id, content, session) = (id.clone(), content.clone(), session.clone());
            let push = PushObject { node, run: to.run, id, content, session };
            let PushedObject { stored } = self.insist("push-object", &push)?;
            let detail = "it did not take an object of the answer".to_string();
            if stored { Ok(()) } else { Err(Fault::Refused { status: 200, code: None, detail }) }
        })?;
        Ok(())
    }

    /// Sends a request again and again while the SuperLink cannot be reached, for as long as an answer is worth it.
    fn insist<Answer: prost::Message + Default>(
        &self,
        path: &str,
        request: &impl prost::Message,
    ) -> Result<Answer, Fault> {
        let until = Instant::now() + OFFER;
        let mut pause = FIRST_RETRY;
        loop {
            match self.link.call(path, request) {
                Err(fault @ Fault::Unreachable(_)) if Instant::now() < until && !self.is_stopped() => {
                    self.miss(&fault);
                    self.wait(pause);
                    pause = (2 * pause).min(LAST_RETRY);
                }
                answered => return answered,
            }
        }
    }
}

/// The bytes of an object that was asked for; `None` where they are still on their way.
pub(crate) fn arrived(found: PulledObject, id: &str) -> Result<Option<Vec<u8>>, &'static str> {
    match (found.found, found.available) {
        (true, true) if id_of(&found.content) == id => Ok(Some(found.content)),
        (true, true) => Err("is not what its id says"),
        (true, false) => Ok(None),
        (false, _) => Err("is not there"),
    }
}

/// Does the same with each of some things, a few at a time, and gives the results in their order, or the first fault.
fn side_by_side<T: Sync, R: Send>(things: &[T], work: impl Fn(&T) -> Result<R, Fault> + Sync) -> Result<Vec<R>, Fault> {
    if let [thing] = things {
        return work(thing).map(|result| vec![result]);
    }
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<R, Fault>>>> = things.iter().map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for _ in 0..things.len().min(SIDE_BY_SIDE) {
            scope.spawn(|| {
                while let Some((thing, result)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    things.get(at).zip(results.get(at))
                } {
                    *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(work(thing));
                }
            });
        }
    });
    results.into_iter().filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}
