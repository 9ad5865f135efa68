//! Cursors of lists, safe in a URL and valid only for the list that they come from.
//!
//! Positions that would tell a restricted token of others are encrypted: hidden identifiers, and
//! positions in a list of leases, which tell how many holders there are.

use aws_lc_rs::{
    aead::{AES_128_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    rand,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use doorman_openapi::ResourceId;

use crate::http::error::ApiError;
use doorman_core::ledger::{ClientCursor, ClientNames, HolderCursor};

/// Prefixes that keep a cursor of one kind from being taken for another.
const RESOURCE: u8 = b'r';
const HIDDEN_RESOURCE: u8 = b'h';
const LEASE: u8 = b'l';
const CLIENT_LEASE: u8 = b'c';
const CLIENTS_LEASE: u8 = b'p';

/// Hidden identifiers are padded to a multiple of this, to hide their length.
const PADDING: usize = 64;

#[derive(Debug)]
pub(crate) struct CursorKey(RandomizedNonceKey);

impl Default for CursorKey {
    fn default() -> Self {
        let mut key = [0; 16];
        rand::fill(&mut key).expect("the system has random bytes");
        let key = RandomizedNonceKey::new(&AES_128_GCM_SIV, &key);
        Self(key.expect("the key has the length of the algorithm"))
    }
}

impl CursorKey {
    /// The cursor after a resource that the caller must not see, of the resources with this prefix.
    pub(super) fn after_hidden_resource(&self, last: &ResourceId, prefix: &str) -> String {
        let mut bytes = last.as_str().as_bytes().to_vec();
        // No identifier contains a zero.
        bytes.resize(bytes.len().next_multiple_of(PADDING), 0);
        self.seal(HIDDEN_RESOURCE, prefix, bytes)
    }

    /// Decodes a cursor of the resources with this prefix; `None` or an empty one is the first
    /// page.
    ///
    /// # Errors
    /// 400 for any other cursor.
    pub(super) fn decode_resource(
        &self,
        cursor: Option<&str>,
        prefix: &str,
    ) -> Result<Option<ResourceId>, ApiError> {
        decode(cursor, |kind, bytes| {
            let name = match kind {
                RESOURCE => String::from_utf8(bytes.to_vec()).ok()?,
                HIDDEN_RESOURCE => {
                    let opened = String::from_utf8(self.open(kind, prefix, bytes)?).ok()?;
                    opened.trim_end_matches('\0').to_owned()
                }
                _ => return None,
            };
            let id = ResourceId::new(name).ok()?;
            id.as_str().starts_with(prefix).then_some(id)
        })
    }

    /// The cursor of the page of leases that begins at this position.
    pub(super) fn at_lease(&self, id: &ResourceId, position: HolderCursor) -> String {
        let HolderCursor { incarnation, slot } = position;
        let bytes = [&incarnation.to_be_bytes()[..], &slot.to_be_bytes()].concat();
        self.seal(LEASE, id.as_str(), bytes)
    }

    /// Decodes a cursor of this resource's leases; `None` or an empty one is the first page.
    ///
    /// # Errors
    /// 400 for any other cursor, also for one of an earlier process.
    pub(super) fn decode_lease(
        &self,
        cursor: Option<&str>,
        id: &ResourceId,
    ) -> Result<Option<HolderCursor>, ApiError> {
        decode(cursor, |kind, bytes| {
            let opened = (kind == LEASE).then(|| self.open(kind, id.as_str(), bytes))??;
            let (incarnation, slot) = opened.split_first_chunk()?;
            Some(HolderCursor {
                incarnation: u64::from_be_bytes(*incarnation),
                slot: u32::from_be_bytes(slot.try_into().ok()?),
            })
        })
    }

    /// The cursor of the page of clients' leases that begins at this position.
    pub(super) fn at_client_lease(&self, names: ClientNames<'_>, position: ClientCursor) -> String {
        let ClientCursor { holder, slot } = position;
        let bytes = [&holder.to_be_bytes()[..], &slot.to_be_bytes()].concat();
        let (kind, list) = client_list(names);
        self.seal(kind, list, bytes)
    }

    /// Decodes a cursor of these clients' leases; `None` or an empty one is the first page.
    ///
    /// # Errors
    /// 400 for any other cursor, also for one of an earlier process.
    pub(super) fn decode_client_lease(
        &self,
        cursor: Option<&str>,
        names: ClientNames<'_>,
    ) -> Result<Option<ClientCursor>, ApiError> {
        let (list_kind, list) = client_list(names);
        decode(cursor, |kind, bytes| {
            let opened = (kind == list_kind).then(|| self.open(kind, list, bytes))??;
            let (holder, slot) = opened.split_first_chunk()?;
            Some(ClientCursor {
                holder: u64::from_be_bytes(*holder),
                slot: u32::from_be_bytes(slot.try_into().ok()?),
            })
        })
    }

    fn seal(&self, kind: u8, list: &str, mut bytes: Vec<u8>) -> String {
        let nonce = self
            .0
            .seal_in_place_append_tag(aad(kind, list), &mut bytes)
            .expect("a short text can be encrypted");
        encode(kind, &[&nonce.as_ref()[..], &bytes].concat())
    }

    fn open(&self, kind: u8, list: &str, bytes: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.0.open_in_place(nonce, aad(kind, list), &mut sealed);
        Some(opened.ok()?.to_vec())
    }
}

/// The kind of a list of clients' leases, and what tells it from others of its kind.
fn client_list(names: ClientNames<'_>) -> (u8, &str) {
    match names {
        ClientNames::One(name) => (CLIENT_LEASE, name.as_str()),
        ClientNames::Prefix(prefix, _) => (CLIENTS_LEASE, prefix),
    }
}

/// Binds a cursor to its list.
fn aad(kind: u8, list: &str) -> Aad<Vec<u8>> {
    Aad::from([&[kind], list.as_bytes()].concat())
}

/// The cursor after a resource that the caller may see.
pub(super) fn after_resource(last: &ResourceId) -> String {
    encode(RESOURCE, last.as_str().as_bytes())
}

fn encode(kind: u8, bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode([&[kind], bytes].concat())
}

fn decode<T>(
    cursor: Option<&str>,
    parse: impl FnOnce(u8, &[u8]) -> Option<T>,
) -> Result<Option<T>, ApiError> {
    let Some(cursor) = cursor.filter(|cursor| !cursor.is_empty()) else {
        return Ok(None);
    };
    let bytes = URL_SAFE_NO_PAD.decode(cursor).unwrap_or_default();
    let (kind, rest) = bytes.split_first().unwrap_or((&0, &[]));
    if let Some(parsed) = parse(*kind, rest) {
        return Ok(Some(parsed));
    }
    let encrypted = match *kind {
        HIDDEN_RESOURCE | LEASE | CLIENT_LEASE | CLIENTS_LEASE => " since the last restart",
        _ => "",
    };
    Err(ApiError::malformed(format!(
        "invalid query parameter `cursor`: must be the `next_cursor` of a page of this list\
         {encrypted}; start again without it"
    )))
}

#[cfg(test)]
mod tests {
    use doorman_openapi::ClientId;

    use super::*;

    const POSITION: HolderCursor = HolderCursor {
        incarnation: 3,
        slot: 7,
    };

    fn id(text: &str) -> ResourceId {
        ResourceId::new(text).unwrap()
    }

    #[test]
    fn cursors_round_trip() {
        let cursor = after_resource(&id("tenant/ü?&"));
        assert!(
            cursor
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        );
        let key = CursorKey::default();
        let hidden = key.after_hidden_resource(&id("tenant/ü?&"), "tenant/");
        for cursor in [cursor, hidden] {
            let decoded = key.decode_resource(Some(&cursor), "tenant/");
            assert_eq!(decoded, Ok(Some(id("tenant/ü?&"))));
        }

        let cursor = key.at_lease(&id("db"), POSITION);
        let decoded = key.decode_lease(Some(&cursor), &id("db"));
        assert_eq!(decoded, Ok(Some(POSITION)));

        let client = ClientId::new("c").unwrap();
        let position = ClientCursor { holder: 3, slot: 7 };
        let cursor = key.at_client_lease(ClientNames::One(&client), position);
        let decode = |client: &str| {
            let client = ClientId::new(client).unwrap();
            key.decode_client_lease(Some(&cursor), ClientNames::One(&client))
        };
        let of_prefix = ClientNames::Prefix("c", None);
        assert!(key.decode_client_lease(Some(&cursor), of_prefix).is_err());
        assert_eq!(decode("c"), Ok(Some(position)));
        assert!(decode("d").is_err());

        assert_eq!(key.decode_resource(None, ""), Ok(None));
        assert_eq!(key.decode_resource(Some(""), ""), Ok(None));
    }

    #[test]
    fn lease_cursors_hide_the_position() {
        let key = CursorKey::default();
        let cursor = key.at_lease(&id("db"), POSITION);
        assert_ne!(key.at_lease(&id("db"), POSITION), cursor);
        let bytes = URL_SAFE_NO_PAD.decode(cursor).unwrap();
        let position = POSITION.incarnation.to_be_bytes();
        assert!(!bytes.windows(8).any(|window| window == position));
    }

    #[test]
    fn hidden_resource_is_not_revealed() {
        let key = CursorKey::default();
        let hidden = |name: &str| key.after_hidden_resource(&id(name), "");
        let (short, long) = (hidden("a"), hidden("somebody-elses-database"));
        assert_eq!(short.len(), long.len());
        let bytes = URL_SAFE_NO_PAD.decode(long).unwrap();
        let mut parts = b"somebody-elses-database".windows(4);
        assert!(!parts.any(|part| bytes.windows(4).any(|window| window == part)));
        assert!(key.decode_resource(Some(&short), "a").is_err());
        let detail = |cursor: &str| {
            let decoded = CursorKey::default().decode_resource(Some(cursor), "");
            decoded.unwrap_err().into_problem().detail
        };
        assert!(detail(&short).contains("restart"));
        assert!(!detail("x").contains("restart"));
    }

    #[test]
    fn cursors_are_valid_only_for_their_own_list() {
        let resource = after_resource(&id("db"));
        let key = CursorKey::default();
        let lease = key.at_lease(&id("db"), POSITION);
        let decode_lease = |cursor: &str, of: &str| key.decode_lease(Some(cursor), &id(of));
        let decode_resource = |cursor: &str, prefix| key.decode_resource(Some(cursor), prefix);
        assert!(decode_resource(&resource, "tenant/").is_err());
        assert!(decode_resource(&lease, "").is_err());
        assert!(decode_lease(&resource, "db").is_err());
        assert!(decode_lease(&lease, "db2").is_err());
        let restarted = CursorKey::default();
        assert!(restarted.decode_lease(Some(&lease), &id("db")).is_err());
        for bad in ["x", "!!!!", "cg", "bGE", "cgA", "aGE", "c mRi"] {
            assert!(decode_resource(bad, "").is_err(), "{bad}");
            assert!(decode_lease(bad, "db").is_err(), "{bad}");
        }
    }
}
