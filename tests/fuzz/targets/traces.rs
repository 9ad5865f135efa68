//! What a `traceparent` may be, said here a second time, in plain words; and what is passed on of it.

use doorman_openapi::{SpanId, TraceContext};

/// Takes the bytes for the value of the header.
///
/// # Panics
/// When it is read though it is none, is not read though it is one, or says something else in the end.
pub fn run(data: &[u8]) {
    let read = TraceContext::parse(data);
    let expected = parts(data);
    let said = read.map(|it| {
        (
            it.trace_id.to_string(),
            it.parent_id.to_string(),
            it.sampled,
        )
    });
    assert_eq!(said, expected, "{}", data.escape_ascii());
    let Some(context) = read else { return };

    let written = context.to_string();
    assert_eq!(written.len(), TraceContext::LENGTH);
    assert_eq!(TraceContext::parse(written.as_bytes()), Some(context));
    let step = SpanId::from_bits(u64::from(data.iter().fold(0_u8, |sum, byte| sum ^ byte)));
    let passed_on = context.child(step);
    assert_eq!(passed_on.parent_id, step);
    assert_eq!(
        (passed_on.trace_id, passed_on.sampled),
        (context.trace_id, context.sampled)
    );
}

/// The trace, the step and whether it was recorded: four fields of hexadecimal digits with hyphens between them, and behind those only
/// what a later version adds (Trace Context, section 3.2).
fn parts(value: &[u8]) -> Option<(String, String, bool)> {
    let mut fields = value.splitn(5, |byte| *byte == b'-');
    let mut field = |digits| {
        let text = str::from_utf8(fields.next()?).ok()?;
        let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        (text.len() == digits && text.chars().all(is_hex)).then(|| text.to_owned())
    };
    let (version, trace, step, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
    let says_more = fields.next().is_some();
    let is_version = version != "ff" && (version != "00" || !says_more);
    let are_names = [&trace, &step]
        .iter()
        .all(|it| it.chars().any(|c| c != '0'));
    let is_recorded = !flags.ends_with(['0', '2', '4', '6', '8', 'a', 'c', 'e']);
    (is_version && are_names).then_some((trace, step, is_recorded))
}
