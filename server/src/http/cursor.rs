//! Where a page of a list begins: opaque to clients, safe in a URL, and good only for the list that it came from.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use doorman_openapi::ResourceId;

use super::{query::bad, refusal::Refusal, seal::Seal};
use crate::core::Place;

/// What a cursor of each list begins with, so that one list does not take the other's.
const RESOURCES: u8 = b'r';
const LEASES: u8 = b'l';

/// The cursor of the page of resources that begins after this one.
pub(crate) fn after_resource(last: &ResourceId) -> String {
    let mut bytes = vec![RESOURCES];
    bytes.extend_from_slice(last.as_str().as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads a cursor of the list of resources with this prefix; `None`, or nothing in it, is the first page.
///
/// # Errors
/// 400 when it is not a cursor of that list.
pub(crate) fn read_resource(
    cursor: Option<&str>,
    prefix: &str,
) -> Result<Option<ResourceId>, Refusal> {
    read(cursor, |bytes| {
        let id =
            ResourceId::new(std::str::from_utf8(bytes.strip_prefix(&[RESOURCES])?).ok()?).ok()?;
        id.as_str().starts_with(prefix).then_some(id)
    })
}

/// The cursor of the page of a resource's leases that begins at this place.
pub(crate) fn at_lease(seal: &Seal, id: &ResourceId, place: Place) -> String {
    let mut bytes = vec![LEASES];
    bytes.extend_from_slice(&seal.close(id.as_str(), place));
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads a cursor of the list of a resource's leases; `None`, or nothing in it, is the first page.
///
/// # Errors
/// 400 when it is not a cursor of that list, and of this start of the server: the next one's books have other places.
pub(crate) fn read_lease(
    seal: &Seal,
    cursor: Option<&str>,
    id: &ResourceId,
) -> Result<Option<Place>, Refusal> {
    read(cursor, |bytes| {
        seal.open(id.as_str(), bytes.strip_prefix(&[LEASES])?)
    })
}

fn read<T>(
    cursor: Option<&str>,
    take: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<Option<T>, Refusal> {
    let Some(cursor) = cursor.filter(|cursor| !cursor.is_empty()) else {
        return Ok(None);
    };
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    match bytes.and_then(|bytes| take(&bytes)) {
        Some(taken) => Ok(Some(taken)),
        None => Err(bad(
            "`cursor` in the query must be the `next_cursor` of a page of this list, from this start of the server: begin again \
             without it",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { life: 3, slot: 7 };

    fn id(text: &str) -> ResourceId {
        ResourceId::new(text).unwrap()
    }

    #[test]
    fn cursors_come_back_as_they_were() {
        let cursor = after_resource(&id("tenant/ü?&"));
        assert!(
            cursor
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        );
        assert_eq!(
            read_resource(Some(&cursor), "tenant/"),
            Ok(Some(id("tenant/ü?&")))
        );

        let seal = Seal::default();
        let cursor = at_lease(&seal, &id("db"), PLACE);
        let read = read_lease(&seal, Some(&cursor), &id("db"));
        assert_eq!(read, Ok(Some(PLACE)));

        assert_eq!(read_resource(None, ""), Ok(None));
        assert_eq!(read_resource(Some(""), ""), Ok(None));
    }

    #[test]
    fn cursors_are_good_only_for_their_own_list() {
        let resource = after_resource(&id("db"));
        let seal = Seal::default();
        let lease = at_lease(&seal, &id("db"), PLACE);
        let read_lease = |cursor: Option<&str>, of: &str| read_lease(&seal, cursor, &id(of));
        assert!(read_resource(Some(&resource), "tenant/").is_err());
        assert!(read_resource(Some(&lease), "").is_err());
        assert!(read_lease(Some(&resource), "db").is_err());
        assert!(read_lease(Some(&lease), "db2").is_err());
        for bad in ["x", "!!!!", "cg", "bGE", "cgA", "c mRi"] {
            assert!(read_resource(Some(bad), "").is_err(), "{bad}");
            assert!(read_lease(Some(bad), "db").is_err(), "{bad}");
        }
    }
}
