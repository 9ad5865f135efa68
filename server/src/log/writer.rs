//! The thread that writes the log, and the way to it, on which nobody waits.

use std::{
    io::{self, Write},
    sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError},
    },
    thread,
    time::Duration,
};

use tracing_subscriber::fmt::MakeWriter;

/// How many lines may wait to be written: those of a burst, in some 2 MiB.
const WAITING: usize = 8 * 1024;

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
pub(super) struct Lines(SyncSender<Message>);

/// Writes out what is left of the log when it is dropped, for a second at most.
#[derive(Debug)]
#[must_use = "the last lines of the log are lost without it"]
pub struct Flush(SyncSender<Message>);

/// Starts the thread, which ends with the process.
pub(super) fn start() -> io::Result<(Lines, Flush)> {
    let (sender, messages) = mpsc::sync_channel(WAITING);
    thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || write_all(&messages, &mut io::stderr()))?;
    Ok((Lines(sender.clone()), Flush(sender)))
}

fn write_all(messages: &Receiver<Message>, out: &mut impl Write) {
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
        if self.0.try_send(Message::Line(line.to_vec())).is_err() {
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
