//! Requests whose bytes lie ready: what changes from one to the next has a fixed width, and is written over.

use std::ops::Range;

use fastrand::Rng;

/// The requests of a fleet that renews its leases, one client after the other.
#[derive(Debug)]
pub(crate) struct Requests {
    bytes: Vec<u8>,
    client: Range<usize>,
    seq: Range<usize>,
    wants: Vec<Range<usize>>,
    clients: usize,
    sent: usize,
    chance: Rng,
}

/// Which resources a client asks for, by number: an identifier has 32 bytes.
const RESOURCES: &str = "tenant/orders-per-second/";

impl Requests {
    /// Every client asks for the same resources, so many; with this `authorization`.
    pub(crate) fn new(clients: usize, resources: usize, authorization: Option<&str>) -> Self {
        let mut body = String::from("{\"client_id\":\"client-");
        let client = field(&mut body, 25);
        body.push_str("\",\"seq\":1");
        let seq = field(&mut body, 12);
        body.push_str(",\"resources\":[");
        let mut wants = Vec::with_capacity(resources);
        for number in 0..resources {
            if number > 0 {
                body.push(',');
            }
            body.push_str(&format!(
                "{{\"resource_id\":\"{RESOURCES}{number:07}\",\"wants\":1"
            ));
            wants.push(field(&mut body, 3));
            body.push_str(".5,\"has\":{\"capacity\":10},\"used\":123456}");
        }
        body.push_str("]}");
        let authorization =
            authorization.map_or_else(String::new, |it| format!("authorization: {it}\r\n"));
        let head = format!(
            "POST /v1/capacity HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: */*\r\n{authorization}content-length: {}\r\n\r\n",
            body.len()
        );
        let moved = |field: Range<usize>| field.start + head.len()..field.end + head.len();
        Self {
            bytes: format!("{head}{body}").into_bytes(),
            client: moved(client),
            seq: moved(seq),
            wants: wants.into_iter().map(moved).collect(),
            clients,
            sent: 0,
            chance: Rng::with_seed(3),
        }
    }

    /// The next client's request. The clients come in an order that is the same each time, but far from that in which they first came.
    pub(crate) fn next(&mut self) -> &[u8] {
        /// A prime: no number of clients that is measured has it as a factor, so every client comes once before any comes again.
        const STRIDE: usize = 7_919;
        let client = if self.sent < self.clients {
            self.sent
        } else {
            self.sent.wrapping_mul(STRIDE) % self.clients
        };
        write(&mut self.bytes, &self.client, client);
        write(&mut self.bytes, &self.seq, self.sent);
        for field in &self.wants {
            write(&mut self.bytes, field, self.chance.usize(..1_000));
        }
        self.sent = self.sent.wrapping_add(1);
        &self.bytes
    }
}

/// Room for a number of so many digits.
fn field(body: &mut String, digits: usize) -> Range<usize> {
    let start = body.len();
    body.extend(std::iter::repeat_n('0', digits));
    start..body.len()
}

fn write(bytes: &mut [u8], field: &Range<usize>, number: usize) {
    let mut left = number;
    for digit in bytes.get_mut(field.clone()).into_iter().flatten().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
}
