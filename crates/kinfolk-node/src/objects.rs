//! What travels through a SuperLink: objects, each addressed by the SHA-256 of its bytes. These begin with a line `TYPE CHILDREN LENGTH`
//! that ends with a zero, and its body follows. A message is an object, whose child is a dict of records, whose children are the
//! records; Kinfolk's bytes are cut into parts of which each is a record with the one key `bytes`.

use crate::messages::{ConfigItem, ConfigRecord, ConfigValue, Message, MessageError, Metadata, Nothing, ObjectTree};
use kinfolk::{Error, Result};
use prost::Message as _;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// As large as the parts of the server's messages.
const PART_BYTES: usize = 4 << 20;
const KEY: &str = "bytes";

/// The id of an object's bytes.
pub fn id_of(object: &[u8]) -> String {
    Sha256::digest(object).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn object(kind: &str, children: &[String], body: &[u8]) -> Vec<u8> {
    let mut object = format!("{kind} {} {}\0", children.join(","), body.len()).into_bytes();
    object.extend_from_slice(body);
    object
}

/// The body of an object of this type.
fn body<'a>(kind: &str, object: &'a [u8]) -> Option<&'a [u8]> {
    let end = object.iter().position(|byte| *byte == 0)?;
    let head = std::str::from_utf8(&object[..end]).ok()?;
    (head.split(' ').next() == Some(kind)).then(|| &object[end + 1..])
}

/// Each of them once, in the order in which they come first.
fn different(ids: &[String]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for id in ids {
        if !found.contains(id) {
            found.push(id.clone());
        }
    }
    found
}

/// The dict of records with these ids, under the names that parts have.
fn dict_of(records: &[String]) -> Vec<u8> {
    let entries: Vec<String> =
        records.iter().enumerate().map(|(number, id)| format!("\"{number:06}\": \"{id}\"")).collect();
    object("RecordDict", &different(records), format!("{{{}}}", entries.join(", ")).as_bytes())
}

/// The reply to a message, ready to be sent: the message, the tree of its objects, and these by their ids.
pub struct Parcel {
    pub message: Message,
    pub tree: ObjectTree,
    pub objects: BTreeMap<String, Vec<u8>>,
}

/// Packs an answer, or an error.
pub fn pack(metadata: Metadata, answer: Result<&[u8], MessageError>) -> Parcel {
    // No bytes are one empty part.
    let parts = answer.map(|bytes| bytes.chunks(PART_BYTES).chain(bytes.is_empty().then_some(bytes)));
    pack_parts(metadata, parts)
}

fn pack_parts<'a>(mut metadata: Metadata, answer: Result<impl Iterator<Item = &'a [u8]>, MessageError>) -> Parcel {
    let mut objects = BTreeMap::new();
    let mut keep = |object: Vec<u8>| {
        let id = id_of(&object);
        objects.insert(id.clone(), object);
        id
    };
    let (mut children, mut error) = (Vec::new(), None);
    match answer {
        Ok(parts) => {
            let records: Vec<String> = parts.map(|part| keep(object("ConfigRecord", &[], &record(part)))).collect();
            let id = keep(dict_of(&records));
            let leaf = |id| ObjectTree { id, children: Vec::new() };
            children.push(ObjectTree { id, children: different(&records).into_iter().map(leaf).collect() });
        }
        Err(fault) => error = Some(fault),
    }
    let content = |error: &Option<MessageError>| error.is_none().then_some(Nothing {});
    let bare = Message { metadata: Some(metadata.clone()), content: None, error: error.clone() };
    let of: Vec<String> = children.iter().map(|child: &ObjectTree| child.id.clone()).collect();
    let id = keep(object("Message", &of, &bare.body()));
    metadata.message_id = id.clone();
    let message = Message { metadata: Some(metadata), content: content(&error), error };
    Parcel { message, tree: ObjectTree { id, children }, objects }
}

fn record(part: &[u8]) -> Vec<u8> {
    let value = ConfigValue { bytes: Some(part.to_vec()) };
    ConfigRecord { items: vec![ConfigItem { key: KEY.into(), value: Some(value) }] }.encode_to_vec()
}

/// Which objects a message's content is made of.
#[derive(Debug, PartialEq)]
pub enum Contents {
    /// These records, in this order.
    Records(Vec<String>),
    /// The records that this dict names.
    Dict(String),
}

/// Where the content of a message is. That of a few parts needs no look into the dict: its id is the hash of what it says.
pub fn contents(tree: &ObjectTree) -> Result<Contents> {
    let [dict] = &*tree.children else { return Err(foreign("no content")) };
    let records: Vec<String> = dict.children.iter().map(|child| child.id.clone()).collect();
    let is_plain = id_of(&dict_of(&records)) == dict.id;
    Ok(if is_plain { Contents::Records(records) } else { Contents::Dict(dict.id.clone()) })
}

/// The ids of the records in a dict, in the order of their names.
pub fn records_of(dict: &[u8]) -> Result<Vec<String>> {
    let body = body("RecordDict", dict).ok_or_else(|| foreign("no dict of records"))?;
    let named: BTreeMap<String, String> = serde_json::from_slice(body).map_err(|_| foreign("no dict of records"))?;
    Ok(named.into_values().collect())
}

/// The part in a record.
pub fn part_of(record: &[u8]) -> Result<Vec<u8>> {
    let found = body("ConfigRecord", record).and_then(|body| ConfigRecord::decode(body).ok());
    let items = found.map(|record| record.items).unwrap_or_default();
    let value = items.into_iter().find(|item| item.key == KEY).and_then(|item| item.value);
    value.and_then(|value| value.bytes).ok_or_else(|| foreign("other records"))
}

fn foreign(what: &str) -> Error {
    Error::federation(format!("a message that Kinfolk did not send: got {what}, want records with \"{KEY}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::Golden;

    fn metadata(to_task: Option<u64>) -> Metadata {
        Metadata {
            run: (1 << 63) + 5,
            from_node: 77,
            to_node: 1,
            reply_to: "ab".repeat(32),
            lifetime: 43100.5,
            message_type: "train.kinfolk".into(),
            created_at: 1790000000.25,
            to_task,
            ..Metadata::default()
        }
    }

    #[test]
    fn an_error_is_the_object_that_flower_makes_of_it() {
        let golden = Golden::read();
        let fault = MessageError { code: 2, reason: "not here".into() };
        let parcel = pack(metadata(None), Err(fault));
        assert_eq!(parcel.objects, golden.objects("error_objects"));
        assert_eq!(parcel.tree.id, golden.text("error_id"));
        golden.assert_bytes("push_error", &push(parcel));
    }

    fn push(parcel: Parcel) -> crate::messages::PushMessages {
        let node = Some(crate::messages::Node { id: 77 });
        crate::messages::PushMessages {
            node,
            messages: vec![parcel.message],
            trees: vec![parcel.tree],
            seconds: vec![0.5],
        }
    }

    #[test]
    fn parts_are_the_objects_that_flower_makes_of_them() {
        let golden = Golden::read();
        let parts: [&[u8]; 3] = [b"kin", b"folk\0\xff", b"kin"];
        let parcel = pack_parts(metadata(Some(9)), Ok(parts.into_iter()));
        assert_eq!(parcel.objects, golden.objects("objects"));
        assert_eq!(parcel.tree.id, golden.text("message_id"));
        assert_eq!(parcel.tree.children[0].id, golden.text("content_id"));
        golden.assert_bytes("push_messages", &push(parcel));
    }

    #[test]
    fn a_message_is_read_part_by_part() {
        let bytes: Vec<u8> = (0..PART_BYTES + 9).map(|index| (index % 251) as u8).collect();
        for (message, looks_into_dict) in [(&bytes[..], false), (&[][..], false), (&[7; 2 * PART_BYTES][..], true)] {
            let parcel = pack(metadata(None), Ok(message));
            let records = match contents(&parcel.tree).unwrap() {
                Contents::Records(records) => {
                    assert!(!looks_into_dict);
                    records
                }
                // Equal parts are one object, and its dict says how often it comes.
                Contents::Dict(id) => {
                    assert!(looks_into_dict);
                    records_of(&parcel.objects[&id]).unwrap()
                }
            };
            let found: Vec<u8> = records.iter().flat_map(|id| part_of(&parcel.objects[id]).unwrap()).collect();
            assert!(found == message);
        }
    }

    #[test]
    fn foreign_objects_are_refused() {
        for bytes in
            [&b""[..], b"ConfigRecord  0", b"ArrayRecord  0\0", b"ConfigRecord  0\0", b"ConfigRecord  3\0\xff\xff\xff"]
        {
            assert!(part_of(bytes).unwrap_err().to_string().contains("want records with"), "{bytes:?}");
            assert!(records_of(bytes).is_err());
        }
        assert!(records_of(b"RecordDict  2\0[]").is_err());
        assert!(contents(&ObjectTree::default()).is_err());
    }
}
