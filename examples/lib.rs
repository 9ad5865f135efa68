//! What the examples share: a load that drives services over real connections, and counts what they answer.

pub mod load;
