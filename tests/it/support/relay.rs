//! A TCP relay that records what clients send, balances connections, and can drop all packets.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
};

/// Forwards connections to programs. Its threads end with their connections, or with the test.
#[derive(Debug)]
pub(crate) struct Relay {
    address: String,
    sent: Arc<Mutex<Vec<u8>>>,
    partition: Arc<Partition>,
}

/// Whether packets are dropped.
#[derive(Debug, Default)]
struct Partition {
    dropping: Mutex<bool>,
    healed: Condvar,
}

impl Partition {
    /// Returns once nothing is dropped, and whether it had to wait.
    fn pass(&self) -> bool {
        let mut dropping = self.dropping.lock().expect("not poisoned");
        let waits = *dropping;
        while *dropping {
            dropping = self.healed.wait(dropping).expect("not poisoned");
        }
        waits
    }
}

impl Relay {
    /// Starts a relay to a base address.
    pub(crate) fn start(to: &str) -> Self {
        Self::balance([to])
    }

    /// Starts a relay to several base addresses. Connections go to one after the other, without
    /// those that refuse them.
    pub(crate) fn balance<'a>(to: impl IntoIterator<Item = &'a str>) -> Self {
        let to = to.into_iter();
        let to: Vec<_> = to
            .map(|it| it.trim_start_matches("http://").to_owned())
            .collect();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let sent = Arc::<Mutex<Vec<u8>>>::default();
        let partition = Arc::<Partition>::default();
        let (record, blocked) = (Arc::clone(&sent), Arc::clone(&partition));
        thread::spawn(move || {
            let clients = listener.incoming().map_while(Result::ok);
            for (index, client) in clients.enumerate() {
                let mut servers = to.iter().cycle().skip(index % to.len()).take(to.len());
                let Some(server) = servers.find_map(|to| TcpStream::connect(to).ok()) else {
                    continue;
                };
                let (back_from, back_to) = (server.try_clone(), client.try_clone());
                let (record, there) = (Arc::clone(&record), Arc::clone(&blocked));
                thread::spawn(move || {
                    forward(client, server, &there, |bytes| {
                        record.lock().expect("not poisoned").extend(bytes);
                    });
                });
                if let (Ok(from), Ok(to)) = (back_from, back_to) {
                    let back = Arc::clone(&blocked);
                    thread::spawn(move || forward(from, to, &back, |_| ()));
                }
            }
        });
        Self {
            address: format!("http://{address}"),
            sent,
            partition,
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

    /// Drops everything in both directions: connections stay open, and nothing arrives.
    pub(crate) fn partition(&self) {
        *self.partition.dropping.lock().expect("not poisoned") = true;
    }

    /// Ends the partition. Connections that lost something end.
    pub(crate) fn heal(&self) {
        *self.partition.dropping.lock().expect("not poisoned") = false;
        self.partition.healed.notify_all();
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, partition: &Partition, observe: impl Fn(&[u8])) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let bytes = buffer.get(..length).unwrap_or_default();
        if partition.pass() {
            drop(from.shutdown(Shutdown::Both));
            break;
        }
        observe(bytes);
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    partition.pass();
    // The other direction may still have something to forward.
    drop(to.shutdown(Shutdown::Write));
}
