//! Somebody between two programs, who writes down what the one sends to the other.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// Passes on what comes to it, and what is answered. Its threads end with their connections, the last one with the test.
#[derive(Debug)]
pub(crate) struct Relay {
    address: String,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Relay {
    /// Starts one to the base address of a program.
    pub(crate) fn start(to: &str) -> Self {
        let to = to.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has one");
        let sent = Arc::<Mutex<Vec<u8>>>::default();
        let notes = Arc::clone(&sent);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&to) else {
                    return;
                };
                let (back_from, back_to) = (server.try_clone(), client.try_clone());
                let notes = Arc::clone(&notes);
                thread::spawn(move || {
                    pass_on(client, server, |bytes| {
                        notes.lock().expect("nobody panics").extend(bytes);
                    });
                });
                if let (Ok(from), Ok(to)) = (back_from, back_to) {
                    thread::spawn(move || pass_on(from, to, |_| ()));
                }
            }
        });
        Self {
            address: format!("http://{address}"),
            sent,
        }
    }

    /// The base address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// All that was sent up to now.
    pub(crate) fn sent(&self) -> String {
        let sent = self.sent.lock().expect("nobody panics");
        String::from_utf8_lossy(&sent).into_owned()
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, note: impl Fn(&[u8])) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let bytes = buffer.get(..length).unwrap_or_default();
        note(bytes);
        if to.write_all(bytes).is_err() {
            return;
        }
    }
}
