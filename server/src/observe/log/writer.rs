//! The thread that writes the log, and the way to it, on which nobody waits.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError},
    },
    thread,
    time::Duration,
};

use tracing_subscriber::fmt::MakeWriter;

/// How many lines may wait to be written: those of a burst.
const WAITING: usize = 8 * 1024;

/// How many bytes they may have together: 4 MiB. Usual lines have less by half; but some say what a token or an error says, of any length.
const WAITING_BYTES: usize = 4 * 1024 * 1024;

/// How long an end waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// How often an end tries to get its word in when the way is full.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// How many lines were left out since the start of the process, for want of somebody who takes them.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// How many lines of the log were left out since the start of the process.
pub(crate) fn left_out() -> u64 {
    LEFT_OUT.load(Relaxed)
}

enum Message {
    Line(Vec<u8>),
    /// Say when everything before this is written.
    Flush(SyncSender<()>),
}

/// Where whoever has something to say writes it.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    messages: SyncSender<Message>,
    waiting: Waiting,
}

/// The bytes of the lines that wait; clones share them.
#[derive(Debug, Clone, Default)]
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    /// Counts so many bytes more, if there is room for them.
    fn add(&self, bytes: usize) -> bool {
        let more = |waiting: usize| {
            let waiting = waiting.checked_add(bytes)?;
            (waiting <= WAITING_BYTES).then_some(waiting)
        };
        self.0.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// So many bytes wait no longer that were added.
    fn remove(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Relaxed);
    }
}

/// Writes out what is left of the log when it is dropped, for a second at most.
#[derive(Debug)]
#[must_use = "the last lines of the log are lost without it"]
pub struct Flush(SyncSender<Message>);

/// Starts the thread, which ends with the process.
pub(super) fn start() -> io::Result<(Lines, Flush)> {
    let (sender, messages) = mpsc::sync_channel(WAITING);
    let waiting = Waiting::default();
    thread::Builder::new().name("log".to_owned()).spawn({
        let waiting = waiting.clone();
        move || write_all(&messages, &waiting, &mut io::stderr())
    })?;
    let lines = Lines {
        messages: sender.clone(),
        waiting,
    };
    Ok((lines, Flush(sender)))
}

fn write_all(messages: &Receiver<Message>, waiting: &Waiting, out: &mut impl Write) {
    let mut told = 0;
    loop {
        let message = match messages.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Empty) => {
                // Said when there is room to say it, by the way that all lines take.
                let left_out = left_out();
                if left_out > told {
                    let lines = left_out.saturating_sub(told);
                    told = left_out;
                    tracing::warn!(lines, "lines of the log were left out: nobody took them");
                }
                match messages.recv() {
                    Ok(message) => message,
                    Err(mpsc::RecvError) => return,
                }
            }
            Err(TryRecvError::Disconnected) => return,
        };
        match message {
            Message::Line(line) => {
                waiting.remove(line.len());
                // When nobody reads the log any more, there is nobody to tell.
                if out.write_all(&line).is_err() {
                    LEFT_OUT.fetch_add(1, Relaxed);
                    told = told.saturating_add(1);
                }
            }
            // Who waits for it may have given up.
            Message::Flush(done) => drop(done.try_send(())),
        }
    }
}

impl Write for Lines {
    /// Takes a whole line, or leaves it out.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let is_taken = self.waiting.add(line.len()) && {
            let sent = self.messages.try_send(Message::Line(line.to_vec()));
            if sent.is_err() {
                self.waiting.remove(line.len());
            }
            sent.is_ok()
        };
        if !is_taken {
            LEFT_OUT.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        let (done, is_done) = mpsc::sync_channel(1);
        let mut message = Message::Flush(done);
        let mut left = LAST_LINES;
        loop {
            match self.0.try_send(message) {
                Ok(()) => break,
                Err(TrySendError::Disconnected(_)) => return,
                Err(TrySendError::Full(back)) => message = back,
            }
            if left.is_zero() {
                return;
            }
            thread::sleep(TRY_AGAIN);
            left = left.saturating_sub(TRY_AGAIN);
        }
        // Whatever it is, it ends here.
        match is_done.recv_timeout(left) {
            Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_bytes_wait_and_no_more_however_long_their_lines_are() {
        let (messages, taken) = mpsc::sync_channel(WAITING);
        let waiting = Waiting::default();
        let mut lines = Lines { messages, waiting };
        let long = vec![b'x'; 64 * 1024];
        for _ in 0..1_000 {
            lines.write_all(&long).unwrap();
        }
        let most = WAITING_BYTES / long.len();
        assert_eq!(taken.try_iter().count(), most);
        // The counts of lines that were left out are one for the process, in which other tests may write.
        assert!(left_out() >= 1_000 - most as u64);

        // What is written makes room.
        let Lines { messages, waiting } = lines.clone();
        waiting.remove(most * long.len());
        lines.write_all(&long).unwrap();
        drop((messages, lines));
        let mut written = Vec::new();
        write_all(&taken, &waiting, &mut written);
        assert_eq!(written, long);
        assert_eq!(waiting.0.load(Relaxed), 0);
    }
}
