//! The `traceparent` header, compared with a simple parser.

use doorman_openapi::{SpanId, TraceContext};

/// Reads the bytes as the value of the header.
///
/// # Panics
/// When an invalid value is accepted, a valid one is rejected, or the context changes.
pub fn run(data: &[u8]) {
    let read = TraceContext::parse(data);
    let expected = parse(data);
    let actual = read.map(|it| {
        (
            it.trace_id.to_string(),
            it.parent_id.to_string(),
            it.sampled,
        )
    });
    assert_eq!(actual, expected, "{}", data.escape_ascii());
    let Some(context) = read else { return };

    let written = context.to_string();
    assert_eq!(written.len(), TraceContext::LENGTH);
    assert_eq!(TraceContext::parse(written.as_bytes()), Some(context));
    let span = SpanId::from_bits(u64::from(data.iter().fold(0_u8, |sum, byte| sum ^ byte)));
    let child = context.child(span);
    assert_eq!(child.parent_id, span);
    assert_eq!(
        (child.trace_id, child.sampled),
        (context.trace_id, context.sampled)
    );
}

/// Trace ID, parent ID and the sampled flag: four fields of hexadecimal digits separated by
/// hyphens. Later versions may append more (W3C Trace Context, section 3.2).
fn parse(value: &[u8]) -> Option<(String, String, bool)> {
    let mut fields = value.splitn(5, |byte| *byte == b'-');
    let mut field = |digits| {
        let text = str::from_utf8(fields.next()?).ok()?;
        let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        (text.len() == digits && text.chars().all(is_hex)).then(|| text.to_owned())
    };
    let (version, trace, parent, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
    let has_more = fields.next().is_some();
    let is_valid_version = version != "ff" && (version != "00" || !has_more);
    let are_nonzero = [&trace, &parent]
        .iter()
        .all(|it| it.chars().any(|c| c != '0'));
    let is_sampled = !flags.ends_with(['0', '2', '4', '6', '8', 'a', 'c', 'e']);
    (is_valid_version && are_nonzero).then_some((trace, parent, is_sampled))
}
