//! Doorman.
