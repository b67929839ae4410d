//! The messages of Flower's Fleet API that a node sends and receives, with the field numbers that Flower gave them. Fields that a
//! node has no use for are left out; readers skip them.

use prost::Message as _;

/// Who is calling.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Node {
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Register {
    #[prost(bytes = "vec", tag = "1")]
    pub public_key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Activate {
    #[prost(bytes = "vec", tag = "1")]
    pub public_key: Vec<u8>,
    #[prost(double, tag = "2")]
    pub heartbeat_interval: f64,
}

/// The answer to [`Activate`] and to [`Register`], and the request to be deactivated or unregistered.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct NodeId {
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

/// An answer without content.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Nothing {}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Heartbeat {
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    #[prost(double, tag = "2")]
    pub interval: f64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct HeartbeatAnswer {
    #[prost(bool, tag = "1")]
    pub success: bool,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct PullMessages {
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PulledMessages {
    #[prost(message, repeated, tag = "2")]
    pub messages: Vec<Message>,
    #[prost(message, repeated, tag = "3")]
    pub trees: Vec<ObjectTree>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PushMessages {
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    #[prost(message, repeated, tag = "2")]
    pub messages: Vec<Message>,
    #[prost(message, repeated, tag = "3")]
    pub trees: Vec<ObjectTree>,
    /// Seconds of work for each.
    #[prost(double, repeated, tag = "4")]
    pub seconds: Vec<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PushedMessages {
    /// The objects that the SuperLink does not have yet.
    #[prost(string, repeated, tag = "3")]
    pub objects_to_push: Vec<String>,
    #[prost(string, tag = "4")]
    pub session: String,
}

/// A message without its content, which is made of objects.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<Metadata>,
    #[prost(message, optional, tag = "2")]
    pub content: Option<Nothing>,
    #[prost(message, optional, tag = "3")]
    pub error: Option<MessageError>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Metadata {
    #[prost(uint64, tag = "1")]
    pub run: u64,
    #[prost(string, tag = "2")]
    pub message_id: String,
    #[prost(uint64, tag = "3")]
    pub from_node: u64,
    #[prost(uint64, tag = "4")]
    pub to_node: u64,
    #[prost(string, tag = "5")]
    pub reply_to: String,
    #[prost(string, tag = "6")]
    pub group: String,
    /// Seconds for which it is valid.
    #[prost(double, tag = "7")]
    pub lifetime: f64,
    #[prost(string, tag = "8")]
    pub message_type: String,
    /// Seconds since 1970.
    #[prost(double, tag = "9")]
    pub created_at: f64,
    #[prost(uint64, optional, tag = "10")]
    pub from_task: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub to_task: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct MessageError {
    #[prost(sint64, tag = "1")]
    pub code: i64,
    #[prost(string, tag = "2")]
    pub reason: String,
}

/// An object and those it is made of, by their ids.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ObjectTree {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, repeated, tag = "2")]
    pub children: Vec<ObjectTree>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PullObject {
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    #[prost(uint64, tag = "2")]
    pub run: u64,
    #[prost(string, tag = "3")]
    pub id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PulledObject {
    #[prost(bool, tag = "1")]
    pub found: bool,
    #[prost(bool, tag = "2")]
    pub available: bool,
    #[prost(bytes = "vec", tag = "3")]
    pub content: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PushObject {
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    #[prost(uint64, tag = "2")]
    pub run: u64,
    #[prost(string, tag = "3")]
    pub id: String,
    #[prost(bytes = "vec", tag = "4")]
    pub content: Vec<u8>,
    #[prost(string, tag = "5")]
    pub session: String,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct PushedObject {
    #[prost(bool, tag = "1")]
    pub stored: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ConfirmReceived {
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    #[prost(uint64, tag = "2")]
    pub run: u64,
    #[prost(string, tag = "3")]
    pub id: String,
}

/// A record of settings; ours have one, `bytes`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConfigRecord {
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<ConfigItem>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ConfigItem {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<ConfigValue>,
}

/// A value of one of many types, of which ours is bytes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConfigValue {
    #[prost(bytes = "vec", optional, tag = "6")]
    pub bytes: Option<Vec<u8>>,
}

impl Metadata {
    /// That of an answer to this message, made at a time in seconds since 1970. It lives no longer than the message.
    pub fn reply(&self, now: f64) -> Self {
        Self {
            message_id: String::new(),
            from_node: self.to_node,
            to_node: self.from_node,
            reply_to: self.message_id.clone(),
            lifetime: self.created_at + self.lifetime - now,
            created_at: now,
            from_task: self.to_task,
            to_task: self.from_task,
            ..self.clone()
        }
    }
}

impl Message {
    /// As an object's content: without its id, which follows from the content.
    pub fn body(&self) -> Vec<u8> {
        let metadata = self.metadata.clone().map(|metadata| Metadata { message_id: String::new(), ..metadata });
        Self { metadata, ..self.clone() }.encode_to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::Golden;

    #[test]
    fn requests_are_written_as_flower_writes_them() {
        let (golden, node) = (Golden::read(), Some(Node { id: 77 }));
        golden.assert_bytes("activate", &Activate { public_key: b"PEM".to_vec(), heartbeat_interval: 10.0 });
        golden.assert_bytes("heartbeat", &Heartbeat { node, interval: 10.0 });
        golden.assert_bytes("pull_messages", &PullMessages { node });
        golden.assert_bytes("pull_object", &PullObject { node, run: 5, id: "cd".into() });
        let (id, content, session) = ("cd".into(), b"kin".to_vec(), "s".into());
        golden.assert_bytes("push_object", &PushObject { node, run: 5, id, content, session });
        golden.assert_bytes("confirm", &ConfirmReceived { node, run: 5, id: "cd".into() });
        golden.assert_bytes("object", &PulledObject { found: true, available: true, content: b"kin".to_vec() });
    }

    #[test]
    fn answers_of_flower_are_read_and_what_a_node_does_not_need_is_skipped() {
        let golden = Golden::read();
        let pushed = PushedMessages::decode(&*golden.bytes("pushed")).unwrap();
        assert_eq!(pushed, PushedMessages { objects_to_push: vec!["x".into(), "y".into()], session: "s".into() });
        let pulled = PulledMessages::decode(&*golden.bytes("pulled")).unwrap();
        let metadata = pulled.messages[0].metadata.clone().unwrap();
        assert_eq!((metadata.run, metadata.to_task, metadata.from_task), ((1 << 63) + 5, Some(9), None));
        assert_eq!(metadata.message_id, golden.text("message_id"));
        assert_eq!(pulled.trees[0].children[0].id, golden.text("content_id"));
        assert!(pulled.messages[0].error.is_none());
    }

    #[test]
    fn a_reply_goes_back_and_lives_as_long_as_the_message() {
        let message = Metadata {
            run: 5,
            message_id: "m".into(),
            from_node: 1,
            to_node: 77,
            lifetime: 100.0,
            message_type: "query.kinfolk".into(),
            created_at: 1000.0,
            from_task: Some(3),
            ..Metadata::default()
        };
        let reply = message.reply(1030.0);
        assert_eq!((reply.from_node, reply.to_node, reply.reply_to.as_str()), (77, 1, "m"));
        assert_eq!((reply.created_at, reply.lifetime, reply.to_task, reply.from_task), (1030.0, 70.0, Some(3), None));
        assert_eq!((reply.message_id.as_str(), reply.message_type.as_str()), ("", "query.kinfolk"));
    }
}
