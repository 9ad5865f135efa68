//! The key of the limiter map: a resource name, inline when short.

use std::{
    borrow::Borrow,
    hash::{Hash, Hasher},
};

use doorman_openapi::ResourceId;

/// The longest inline name. It makes a [`Name`] 40 bytes.
const INLINE: usize = 38;

#[derive(Clone)]
pub(super) enum Name {
    Inline { length: u8, bytes: [u8; INLINE] },
    Shared(ResourceId),
}

impl From<&ResourceId> for Name {
    fn from(id: &ResourceId) -> Self {
        let text = id.as_str().as_bytes();
        let mut bytes = [0; INLINE];
        match (u8::try_from(text.len()), bytes.get_mut(..text.len())) {
            (Ok(length), Some(inline)) => {
                inline.copy_from_slice(text);
                Self::Inline { length, bytes }
            }
            _ => Self::Shared(id.clone()),
        }
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Self::Shared(id) => id.as_str().as_bytes(),
        }
    }
}

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
    fn names_of_any_length_compare_by_text() {
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
