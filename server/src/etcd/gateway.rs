//! JSON of etcd's gateway: keys and values are base64, 64-bit numbers are strings, and zeros, empty
//! lists and `false` are left out.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Deserializer, de};
use serde_json::{Value, json};

use doorman_core::etcd::{
    Compare, EtcdAnswer, EtcdCall, EtcdReply, KeyValue, LeaseId, Op, ReplyHeader, Txn, TxnReply,
};

/// gRPC's code for a thing that does not exist.
const NOT_FOUND: i64 = 5;

/// The path and the body of a call.
pub(super) fn request(call: &EtcdCall) -> (&'static str, Value) {
    let lease = |LeaseId(id): &LeaseId| json!({ "ID": id.to_string() });
    match call {
        EtcdCall::GrantLease { ttl } => ("/v3/lease/grant", json!({ "TTL": ttl.to_string() })),
        EtcdCall::KeepAlive(id) => ("/v3/lease/keepalive", lease(id)),
        EtcdCall::TimeToLive(id) => ("/v3/lease/timetolive", lease(id)),
        EtcdCall::RevokeLease(id) => ("/v3/lease/revoke", lease(id)),
        EtcdCall::Txn(txn) => ("/v3/kv/txn", transaction(txn)),
    }
}

fn transaction(txn: &Txn) -> Value {
    let compare: Vec<_> = txn.compare.iter().map(comparison).collect();
    let [success, failure] =
        [&txn.success, &txn.failure].map(|ops| ops.iter().map(operation).collect::<Vec<_>>());
    json!({ "compare": compare, "success": success, "failure": failure })
}

fn comparison(compare: &Compare) -> Value {
    let (target, field, key, revision) = match compare {
        Compare::Created { key, revision } => ("CREATE", "create_revision", key, revision),
        Compare::Modified { key, revision } => ("MOD", "mod_revision", key, revision),
    };
    json!({
        "target": target,
        "result": "EQUAL",
        "key": BASE64_STANDARD.encode(key),
        field: revision.to_string(),
    })
}

fn operation(op: &Op) -> Value {
    match op {
        Op::Get(key) => json!({ "request_range": { "key": BASE64_STANDARD.encode(key) } }),
        Op::GetPrefix(prefix) => {
            let (key, end) = range(prefix);
            json!({ "request_range": { "key": key, "range_end": end } })
        }
        Op::Put { key, value, lease } => {
            let LeaseId(lease) = lease.unwrap_or(LeaseId(0));
            json!({ "request_put": {
                "key": BASE64_STANDARD.encode(key),
                "value": BASE64_STANDARD.encode(value),
                "lease": lease.to_string(),
            } })
        }
        Op::Delete(key) => json!({ "request_delete_range": {
            "key": BASE64_STANDARD.encode(key),
            "prev_kv": true,
        } }),
        Op::DeletePrefix(prefix) => {
            let (key, end) = range(prefix);
            json!({ "request_delete_range": { "key": key, "range_end": end, "prev_kv": true } })
        }
    }
}

/// The first key with a prefix, and the first one after all of them.
fn range(prefix: &str) -> (String, String) {
    let mut end = prefix.as_bytes().to_vec();
    let (first, end) = match end.last_mut() {
        // No byte of UTF-8 is the largest one.
        Some(last) => {
            *last = last.saturating_add(1);
            (prefix.as_bytes(), end)
        }
        // etcd's notation for all keys.
        None => (&[0][..], vec![0]),
    };
    (BASE64_STANDARD.encode(first), BASE64_STANDARD.encode(end))
}

/// The reply in the body of a successful response. An error says what is wrong with it.
pub(super) fn reply(call: &EtcdCall, body: &[u8]) -> Result<EtcdAnswer, String> {
    let (header, reply) = match call {
        EtcdCall::GrantLease { .. } => {
            let lease: Lease = parse(body)?;
            if lease.id == 0 || lease.ttl <= 0 {
                return Err("no lease in the reply".to_owned());
            }
            let reply = EtcdReply::LeaseGranted {
                lease: LeaseId(lease.id),
                ttl: seconds(lease.ttl),
            };
            (lease.header, reply)
        }
        EtcdCall::KeepAlive(_) => {
            // A stream of lines, of which one is enough.
            let line = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
            match parse(line)? {
                Streamed::Result(lease) => {
                    let ttl = (lease.ttl > 0).then(|| seconds(lease.ttl));
                    (lease.header, EtcdReply::KeptAlive(ttl))
                }
                Streamed::Error(error) if error.is_not_found() => {
                    (Header::default(), EtcdReply::KeptAlive(None))
                }
                Streamed::Error(error) => return Err(error.message),
            }
        }
        EtcdCall::TimeToLive(_) => {
            let lease: Lease = parse(body)?;
            let exists = lease.granted_ttl > 0 && lease.ttl >= 0;
            // A new leader of etcd prolongs all leases, and one that was deposed lets none end.
            let left = lease.ttl.min(lease.granted_ttl);
            let reply = EtcdReply::TimeLeft(exists.then(|| seconds(left)));
            (lease.header, reply)
        }
        EtcdCall::RevokeLease(_) => (Header::default(), EtcdReply::LeaseRevoked),
        EtcdCall::Txn(txn) => {
            let reply: Transaction = parse(body)?;
            (reply.header, EtcdReply::Txn(transaction_reply(txn, reply)?))
        }
    };
    Ok(EtcdAnswer {
        header: header.into(),
        reply,
    })
}

fn transaction_reply(txn: &Txn, reply: Transaction) -> Result<TxnReply, String> {
    let operations = if reply.succeeded {
        &txn.success
    } else {
        &txn.failure
    };
    if reply.responses.len() != operations.len() {
        return Err("the reply has another number of operations than the transaction".to_owned());
    }
    let keys = |response| match response {
        OpResponse::Range(range) => range.kvs,
        OpResponse::Delete(delete) => delete.prev_kvs,
        OpResponse::Put(_) => Vec::new(),
    };
    let key_values = |keys: Vec<Key>| keys.into_iter().map(Key::into_key_value).collect();
    Ok(TxnReply {
        succeeded: reply.succeeded,
        revision: reply.header.revision,
        results: (reply.responses.into_iter())
            .map(|response| key_values(keys(response)))
            .collect::<Result<_, _>>()?,
    })
}

/// The reply to a call that failed because its lease does not exist, if it has one for that. An
/// error has no header.
pub(super) fn reply_without_lease(call: &EtcdCall) -> Option<EtcdAnswer> {
    let reply = match call {
        EtcdCall::KeepAlive(_) => EtcdReply::KeptAlive(None),
        EtcdCall::TimeToLive(_) => EtcdReply::TimeLeft(None),
        EtcdCall::RevokeLease(_) => EtcdReply::LeaseRevoked,
        EtcdCall::GrantLease { .. } | EtcdCall::Txn(_) => return None,
    };
    Some(EtcdAnswer {
        header: ReplyHeader::default(),
        reply,
    })
}

/// The path and the body of a call that asks for the alarms of the cluster.
pub(super) fn alarms() -> (&'static str, Value) {
    ("/v3/maintenance/alarm", json!({ "action": "GET" }))
}

/// Whether a member is out of space, by the reply with the alarms, and its header. etcd 3.4 sends
/// none.
pub(super) fn has_space_alarm(body: &[u8]) -> Result<(bool, Option<ReplyHeader>), String> {
    #[derive(Deserialize)]
    struct Alarms {
        header: Option<Header>,
        #[serde(default)]
        alarms: Vec<Alarm>,
    }
    #[derive(Deserialize)]
    struct Alarm {
        #[serde(default)]
        alarm: String,
    }
    let Alarms { header, alarms } = parse(body)?;
    let has_alarm = alarms.iter().any(|it| it.alarm == "NOSPACE");
    Ok((has_alarm, header.map(ReplyHeader::from)))
}

/// The token in the reply to an authentication.
pub(super) fn token(body: &[u8]) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Authenticated {
        token: String,
    }
    Ok(parse::<Authenticated>(body)?.token)
}

/// An error of etcd.
#[derive(Debug, Deserialize)]
pub(super) struct Failure {
    /// gRPC's code.
    #[serde(alias = "grpc_code", default)]
    code: i64,
    pub(super) message: String,
}

impl Failure {
    /// The error in the body of a response; `None` if another program answered.
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.code == NOT_FOUND
    }

    /// Whether the call may succeed with a new token.
    pub(super) fn is_of_token(&self) -> bool {
        [
            "invalid auth token",
            "user name is empty",
            "auth store is old",
        ]
        .iter()
        .any(|text| self.message.contains(text))
    }

    pub(super) fn is_without_authentication(&self) -> bool {
        self.message.contains("authentication is not enabled")
    }

    pub(super) fn is_of_space(&self) -> bool {
        self.message.contains("database space exceeded")
    }

    pub(super) fn is_of_size(&self) -> bool {
        ["request is too large", "received message larger than max"]
            .iter()
            .any(|text| self.message.contains(text))
    }
}

#[derive(Deserialize)]
struct Lease {
    #[serde(default)]
    header: Header,
    #[serde(rename = "ID", default, deserialize_with = "number")]
    id: i64,
    #[serde(rename = "TTL", default, deserialize_with = "number")]
    ttl: i64,
    #[serde(rename = "grantedTTL", default, deserialize_with = "number")]
    granted_ttl: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Streamed {
    Result(Lease),
    Error(Failure),
}

#[derive(Deserialize)]
struct Transaction {
    header: Header,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<OpResponse>,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct Header {
    #[serde(default, deserialize_with = "number")]
    cluster_id: u64,
    #[serde(default, deserialize_with = "number")]
    revision: u64,
    #[serde(default, deserialize_with = "number")]
    raft_term: u64,
}

impl From<Header> for ReplyHeader {
    fn from(header: Header) -> Self {
        Self {
            cluster: header.cluster_id,
            raft_term: header.raft_term,
            revision: header.revision,
        }
    }
}

#[derive(Deserialize)]
enum OpResponse {
    #[serde(rename = "response_range")]
    Range(Range),
    #[serde(rename = "response_put")]
    Put(de::IgnoredAny),
    #[serde(rename = "response_delete_range")]
    Delete(Deleted),
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Key>,
}

#[derive(Deserialize)]
struct Deleted {
    #[serde(default)]
    prev_kvs: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default, deserialize_with = "number")]
    create_revision: u64,
    #[serde(default, deserialize_with = "number")]
    mod_revision: u64,
    #[serde(default, deserialize_with = "number")]
    lease: i64,
}

impl Key {
    fn into_key_value(self) -> Result<KeyValue, String> {
        let decode = |text: String| BASE64_STANDARD.decode(text).map_err(|it| it.to_string());
        Ok(KeyValue {
            // One that is not UTF-8 is not ours.
            key: String::from_utf8_lossy(&decode(self.key)?).into_owned(),
            value: decode(self.value)?,
            created: self.create_revision,
            modified: self.mod_revision,
            lease: (self.lease != 0).then_some(LeaseId(self.lease)),
        })
    }
}

fn number<'de, D: Deserializer<'de>, N>(deserializer: D) -> Result<N, D::Error>
where
    N: std::str::FromStr<Err: std::fmt::Display>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(de::Error::custom)
}

fn parse<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// Whole seconds; `ttl` is not negative.
fn seconds(ttl: i64) -> u32 {
    u32::try_from(ttl).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
