//! Prepared requests, whose variable fields have a fixed width and are overwritten in place.

use std::ops::Range;

use fastrand::Rng;

/// The lease requests of all clients, in turn.
#[derive(Debug)]
pub(crate) struct Requests {
    bytes: Vec<u8>,
    client: Range<usize>,
    seq: Range<usize>,
    wants: Vec<Range<usize>>,
    clients: usize,
    sent: usize,
    rng: Rng,
}

/// Prefix of resource ids, which have 32 bytes.
const RESOURCES: &str = "tenant/orders-per-second/";

impl Requests {
    /// Every request names the same resources.
    pub(crate) fn new(clients: usize, resources: usize, authorization: Option<&str>) -> Self {
        let mut body = String::from("{\"client_id\":\"client-");
        let client = push_field(&mut body, 25);
        body.push_str("\",\"seq\":1");
        let seq = push_field(&mut body, 12);
        body.push_str(",\"resources\":[");
        let mut wants = Vec::with_capacity(resources);
        for number in 0..resources {
            if number > 0 {
                body.push(',');
            }
            body.push_str(&format!(
                "{{\"resource_id\":\"{RESOURCES}{number:07}\",\"wants\":1"
            ));
            wants.push(push_field(&mut body, 3));
            body.push_str(".5,\"has\":{\"capacity\":10},\"used\":123456}");
        }
        body.push_str("]}");
        let authorization =
            authorization.map_or_else(String::new, |it| format!("authorization: {it}\r\n"));
        let head = format!(
            "POST /v1/capacity HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             accept: */*\r\n{authorization}content-length: {}\r\n\r\n",
            body.len()
        );
        let shift = |field: Range<usize>| field.start + head.len()..field.end + head.len();
        Self {
            bytes: format!("{head}{body}").into_bytes(),
            client: shift(client),
            seq: shift(seq),
            wants: wants.into_iter().map(shift).collect(),
            clients,
            sent: 0,
            rng: Rng::with_seed(3),
        }
    }

    /// The request of the next client. After every client has joined, the order is fixed but
    /// differs from the order in which they joined.
    pub(crate) fn next(&mut self) -> &[u8] {
        /// A prime that divides no number of clients, so that the order visits every client.
        const STRIDE: usize = 7_919;
        let client = if self.sent < self.clients {
            self.sent
        } else {
            self.sent.wrapping_mul(STRIDE) % self.clients
        };
        write_digits(&mut self.bytes, &self.client, client);
        write_digits(&mut self.bytes, &self.seq, self.sent);
        for field in &self.wants {
            write_digits(&mut self.bytes, field, self.rng.usize(..1_000));
        }
        self.sent = self.sent.wrapping_add(1);
        &self.bytes
    }
}

/// Appends a number field, and returns its range.
fn push_field(body: &mut String, digits: usize) -> Range<usize> {
    let start = body.len();
    body.extend(std::iter::repeat_n('0', digits));
    start..body.len()
}

fn write_digits(bytes: &mut [u8], field: &Range<usize>, number: usize) {
    let mut left = number;
    for digit in bytes.get_mut(field.clone()).into_iter().flatten().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
}
