//! Where a page of a list begins: opaque to clients, safe in a URL, and good only for the list that it came from.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use doorman_openapi::ResourceId;

use super::{
    query::bad,
    refusal::Refusal,
    seal::{List, Seal},
};
use crate::ledger::HolderCursor;

/// What a cursor of each list begins with, so that one list does not take the other's.
const RESOURCES: u8 = b'r';
const HIDDEN: u8 = b'h';
const LEASES: u8 = b'l';

/// Identifiers that are hidden are filled up to a multiple of so many bytes: their length would tell something of them.
const BLOCK: usize = 64;

/// The cursor of the page of resources that begins after this one.
pub(crate) fn after_resource(last: &ResourceId) -> String {
    encode(RESOURCES, last.as_str().as_bytes())
}

/// The same for who is not to know of that resource; of the list of those with this prefix.
pub(crate) fn after_hidden_resource(seal: &Seal, last: &ResourceId, prefix: &str) -> String {
    let mut place = last.as_str().as_bytes().to_vec();
    // No identifier has a zero in it.
    place.resize(place.len().next_multiple_of(BLOCK), 0);
    encode(HIDDEN, &seal.close(List::Resources(prefix), &place))
}

/// Reads a cursor of the list of resources with this prefix; `None`, or nothing in it, is the first page.
///
/// # Errors
/// 400 when it is not a cursor of that list, or hides its place and is not of this start of the server.
pub(crate) fn read_resource(
    seal: &Seal,
    cursor: Option<&str>,
    prefix: &str,
) -> Result<Option<ResourceId>, Refusal> {
    read(cursor, |kind, place| {
        let shown = match kind {
            RESOURCES => place.to_vec(),
            HIDDEN => seal.open(List::Resources(prefix), place)?,
            _ => return None,
        };
        let name = std::str::from_utf8(&shown).ok()?;
        let name = match kind {
            HIDDEN => name.trim_end_matches('\0'),
            _ => name,
        };
        let id = ResourceId::new(name).ok()?;
        id.as_str().starts_with(prefix).then_some(id)
    })
}

/// The cursor of the page of a resource's leases that begins at this place.
pub(crate) fn at_lease(seal: &Seal, id: &ResourceId, place: HolderCursor) -> String {
    let HolderCursor { incarnation, slot } = place;
    let mut bytes = incarnation.to_be_bytes().to_vec();
    bytes.extend_from_slice(&slot.to_be_bytes());
    encode(LEASES, &seal.close(List::Leases(id.as_str()), &bytes))
}

/// Reads a cursor of the list of a resource's leases; `None`, or nothing in it, is the first page.
///
/// # Errors
/// 400 when it is not a cursor of that list, and of this start of the server: the next one's books have other places.
pub(crate) fn read_lease(
    seal: &Seal,
    cursor: Option<&str>,
    id: &ResourceId,
) -> Result<Option<HolderCursor>, Refusal> {
    read(cursor, |kind, place| {
        let shown = (kind == LEASES).then(|| seal.open(List::Leases(id.as_str()), place))??;
        let (incarnation, slot) = shown.split_first_chunk()?;
        Some(HolderCursor {
            incarnation: u64::from_be_bytes(*incarnation),
            slot: u32::from_be_bytes(slot.try_into().ok()?),
        })
    })
}

fn encode(kind: u8, place: &[u8]) -> String {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(place);
    URL_SAFE_NO_PAD.encode(bytes)
}

fn read<T>(
    cursor: Option<&str>,
    take: impl FnOnce(u8, &[u8]) -> Option<T>,
) -> Result<Option<T>, Refusal> {
    let Some(cursor) = cursor.filter(|cursor| !cursor.is_empty()) else {
        return Ok(None);
    };
    let bytes = URL_SAFE_NO_PAD.decode(cursor).unwrap_or_default();
    let (kind, place) = bytes.split_first().unwrap_or((&0, &[]));
    if let Some(taken) = take(*kind, place) {
        return Ok(Some(taken));
    }
    // What is sealed cannot be read by the next start.
    let of_this_start = match *kind {
        HIDDEN | LEASES => ", from this start of the server",
        _ => "",
    };
    Err(bad(format!(
        "`cursor` in the query must be the `next_cursor` of a page of this list{of_this_start}: begin again without it"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: HolderCursor = HolderCursor {
        incarnation: 3,
        slot: 7,
    };

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
        let seal = Seal::default();
        let hidden = after_hidden_resource(&seal, &id("tenant/ü?&"), "tenant/");
        for cursor in [cursor, hidden] {
            let read = read_resource(&seal, Some(&cursor), "tenant/");
            assert_eq!(read, Ok(Some(id("tenant/ü?&"))));
        }

        let cursor = at_lease(&seal, &id("db"), PLACE);
        let read = read_lease(&seal, Some(&cursor), &id("db"));
        assert_eq!(read, Ok(Some(PLACE)));

        assert_eq!(read_resource(&seal, None, ""), Ok(None));
        assert_eq!(read_resource(&seal, Some(""), ""), Ok(None));
    }

    #[test]
    fn a_hidden_resource_cannot_be_told_by_its_cursor() {
        let seal = Seal::default();
        let hidden = |name: &str| after_hidden_resource(&seal, &id(name), "");
        let (short, long) = (hidden("a"), hidden("somebody-elses-database"));
        assert_eq!(short.len(), long.len());
        let bytes = URL_SAFE_NO_PAD.decode(long).unwrap();
        assert!(
            !bytes
                .windows(4)
                .any(|part| b"somebody-elses-database".windows(4).any(|it| it == part))
        );
        // Under another prefix, and by another start, it leads nowhere.
        assert!(read_resource(&seal, Some(&short), "a").is_err());
        let said = |cursor: &str| {
            let read = read_resource(&Seal::default(), Some(cursor), "");
            read.err().map(|refusal| format!("{refusal:?}"))
        };
        assert!(said(&short).unwrap().contains("this start"));
        assert!(!said("x").unwrap().contains("this start"));
    }

    #[test]
    fn cursors_are_good_only_for_their_own_list() {
        let resource = after_resource(&id("db"));
        let seal = Seal::default();
        let lease = at_lease(&seal, &id("db"), PLACE);
        let read_lease = |cursor: Option<&str>, of: &str| read_lease(&seal, cursor, &id(of));
        assert!(read_resource(&seal, Some(&resource), "tenant/").is_err());
        assert!(read_resource(&seal, Some(&lease), "").is_err());
        assert!(read_lease(Some(&resource), "db").is_err());
        assert!(read_lease(Some(&lease), "db2").is_err());
        for bad in ["x", "!!!!", "cg", "bGE", "cgA", "aGE", "c mRi"] {
            assert!(read_resource(&seal, Some(bad), "").is_err(), "{bad}");
            assert!(read_lease(Some(bad), "db").is_err(), "{bad}");
        }
    }
}
