//! Captured logs, for tests.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use tracing::subscriber::{DefaultGuard, set_default, set_global_default};

/// The log of this thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Captures it until the guard is dropped.
    pub(crate) fn capture() -> (Self, DefaultGuard) {
        // Tracing caches interest in an event by the first thread that emits it. A second, global
        // subscriber disables that cache.
        set_global_default(tracing_subscriber::registry()).ok();
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
        (log, set_default(subscriber.finish()))
    }

    pub(crate) fn count(&self, text: &str) -> usize {
        let lines = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        lines.lines().filter(|line| line.contains(text)).count()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
