//! Every decoder of what a SuperLink sends, with spoiled bytes: none panics, hangs or takes all memory.
//!
//! A moment here; `make fuzz` goes on for as long as one likes.

// The other tests use more of them.
#[allow(dead_code)]
#[path = "../../kinfolk/tests/fuzz/harness.rs"]
mod harness;
#[path = "../../kinfolk/tests/fuzz/mutate.rs"]
mod mutate;

use crate::golden::Golden;
use crate::link;
use crate::messages::{Message, MessageError, Metadata, ObjectTree, PulledMessages, PulledObject, PushedMessages};
use crate::objects::{Contents, contents, id_of, pack, part_of, records_of};
use crate::resident::arrived;
use harness::{Inputs, cases, fuzz};
use prost::Message as _;

/// A message of several parts as a SuperLink hands it out, and its objects.
fn parcel(bytes: &[u8]) -> crate::objects::Parcel {
    let metadata = Metadata { run: 5, message_type: "train.kinfolk".into(), lifetime: 60.0, ..Metadata::default() };
    pack(metadata, Ok(bytes))
}

fn pulled(bytes: &[u8]) -> Vec<u8> {
    let parcel = parcel(bytes);
    PulledMessages { messages: vec![parcel.message], trees: vec![parcel.tree] }.encode_to_vec()
}

#[test]
fn node_messages() {
    let deep = (0..40).fold(ObjectTree::default(), |tree, _| ObjectTree { id: "ab".repeat(32), children: vec![tree] });
    let nested = PulledMessages { messages: vec![Message::default()], trees: vec![deep] }.encode_to_vec();
    let corpus = vec![Golden::read().bytes("pulled"), pulled(b"kinfolk"), pulled(&vec![7; 9 << 20]), nested];
    fuzz(&Inputs::of("node_messages", corpus), cases(5000, 1), |_, bytes| {
        let Ok(found) = PulledMessages::decode(bytes) else { return false };
        for metadata in found.messages.iter().filter_map(|message| message.metadata.as_ref()) {
            let error = MessageError { code: 2, reason: "no".into() };
            assert!(!pack(metadata.reply(1e9), Err(error)).tree.id.is_empty());
        }
        let _: Vec<kinfolk::Result<Contents>> = found.trees.iter().map(contents).collect();
        true
    });
}

/// Objects as they are pulled: what was changed on the way is never taken for what was asked for.
#[test]
fn node_objects() {
    let mut objects = Golden::read().objects("objects");
    objects.extend(Golden::read().objects("error_objects"));
    objects.extend(parcel(b"a model").objects);
    let answer = |content: &Vec<u8>| PulledObject { found: true, available: true, content: content.clone() };
    let corpus = objects.values().map(|object| answer(object).encode_to_vec()).collect();
    fuzz(&Inputs::of("node_objects", corpus), cases(5000, 1), |_, bytes| {
        let Ok(found) = PulledObject::decode(bytes) else { return false };
        let _ = (part_of(&found.content), records_of(&found.content));
        for (id, object) in &objects {
            if let Ok(Some(content)) = arrived(found.clone(), id) {
                assert!(content == *object && id_of(&content) == *id, "other bytes under the id {id}");
            }
        }
        true
    });
}

#[test]
fn node_receipts() {
    fuzz(&Inputs::of("node_receipts", vec![Golden::read().bytes("pushed")]), cases(5000, 1), |_, bytes| {
        PushedMessages::decode(bytes).is_ok()
    });
}

#[test]
fn node_refusals() {
    let corpus = [
        r#"{"code":2007,"detail":"run is not running"}"#,
        r#"{"openapi":"3.1.0","info":{"title":"SuperLink","version":"1.41.0"},"paths":{}}"#,
        "<html><body>502 Bad Gateway</body></html>",
    ];
    let corpus = corpus.map(|text| text.as_bytes().to_vec()).to_vec();
    fuzz(&Inputs::mixed("node_refusals", corpus), cases(5000, 1), |case, bytes| {
        let status = [400, 401, 403, 404, 500, 503][case as usize % 6];
        let fault = link::refusal(status, bytes, Some(case as f64 * 1e6));
        assert_eq!(matches!(fault, link::Fault::Unauthorised(Some(_))), status == 401, "{fault:?}");
        link::version_in(&String::from_utf8_lossy(bytes)).is_some_and(|version| link::is_supported(&version))
    });
}
