//! The name of a resource, where limiters are looked up by it.

use std::{
    borrow::Borrow,
    hash::{Hash, Hasher},
};

use doorman_openapi::ResourceId;

/// The longest name that is kept in place; with it a name is 40 bytes.
const SHORT: usize = 38;

/// A short one lies in the entry of the map itself: to compare it, nothing else is fetched from the memory.
#[derive(Clone)]
pub(super) enum Name {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(ResourceId),
}

impl From<&ResourceId> for Name {
    fn from(id: &ResourceId) -> Self {
        let text = id.as_str().as_bytes();
        let mut bytes = [0; SHORT];
        match (u8::try_from(text.len()), bytes.get_mut(..text.len())) {
            (Ok(length), Some(place)) => {
                place.copy_from_slice(text);
                Self::Short { length, bytes }
            }
            _ => Self::Long(id.clone()),
        }
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Self::Long(id) => id.as_str().as_bytes(),
        }
    }
}

/// As its bytes, by which it is looked for.
impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let bytes: &[u8] = self.borrow();
        bytes.hash(state);
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        let (one, other): (&[u8], &[u8]) = (self.borrow(), other.borrow());
        one == other
    }
}

impl Eq for Name {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_its_text_however_long_and_no_other() {
        let texts: Vec<String> = (1..=60).map(|length| "a".repeat(length)).collect();
        let name = |text: &String| Name::from(&ResourceId::new(text).unwrap());
        assert_eq!(size_of::<Name>(), 40);
        for one in &texts {
            let bytes = name(one);
            assert_eq!(Borrow::<[u8]>::borrow(&bytes), one.as_bytes());
            for other in &texts {
                assert_eq!(name(one) == name(other), one == other, "{one} {other}");
            }
        }
    }
}
