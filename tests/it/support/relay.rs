//! A TCP relay that records what clients send.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// Forwards connections to a program. Its threads end with their connections, or with the test.
#[derive(Debug)]
pub(crate) struct Relay {
    address: String,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Relay {
    /// Starts a relay to a base address.
    pub(crate) fn start(to: &str) -> Self {
        let to = to.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let sent = Arc::<Mutex<Vec<u8>>>::default();
        let record = Arc::clone(&sent);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&to) else {
                    return;
                };
                let (back_from, back_to) = (server.try_clone(), client.try_clone());
                let record = Arc::clone(&record);
                thread::spawn(move || {
                    forward(client, server, |bytes| {
                        record.lock().expect("not poisoned").extend(bytes);
                    });
                });
                if let (Ok(from), Ok(to)) = (back_from, back_to) {
                    thread::spawn(move || forward(from, to, |_| ()));
                }
            }
        });
        Self {
            address: format!("http://{address}"),
            sent,
        }
    }

    /// Base address of the relay.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Everything sent to the program up to now.
    pub(crate) fn sent(&self) -> String {
        let sent = self.sent.lock().expect("not poisoned");
        String::from_utf8_lossy(&sent).into_owned()
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, observe: impl Fn(&[u8])) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let bytes = buffer.get(..length).unwrap_or_default();
        observe(bytes);
        if to.write_all(bytes).is_err() {
            return;
        }
    }
}
