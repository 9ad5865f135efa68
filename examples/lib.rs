//! Load generator of the examples: real connections, and counts of the responses.

pub mod load;

/// The code of the README and the guides, compiled as it stands there.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/KEYS.md")]
    struct Keys;
    #[doc = include_str!("../docs/LAYER.md")]
    struct Layer;
}
