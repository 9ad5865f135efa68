//! Warnings in responses: those of a document, and of an edit of it.

use doorman_config::{Diagnostic, Document, EditNotes, Restrictions};

/// The most warnings in a response.
const MAX_WARNINGS: usize = 100;

/// The warnings of a document. A restricted caller gets none of single entries: they may quote what
/// it must not see.
pub(crate) fn of_document(document: &Document, restrictions: &Restrictions) -> Vec<String> {
    let is_visible = |it: &&Diagnostic| restrictions.is_unrestricted() || it.is_of_whole_document();
    let warnings = document.warnings().iter().filter(is_visible);
    let warnings = warnings.take(MAX_WARNINGS);
    warnings.map(ToString::to_string).collect()
}

/// The warnings of the effects of an edit on live resources, the notes on it, and the warnings of
/// the resulting document.
pub(crate) fn of_edit(
    effects: &[String],
    notes: &EditNotes,
    document: &Document,
    restrictions: &Restrictions,
) -> Vec<String> {
    let placed = notes.placed_before.as_ref();
    let placed = placed.filter(|_| restrictions.is_unrestricted());
    let placed = placed.map(|glob| {
        format!("placed before the template `{glob}`, which matches everything that this one does")
    });
    let dropped = (!notes.dropped.is_empty()).then(|| {
        format!(
            "replaced as a whole; lost with the fields that were left out: {}; PATCH changes single \
             fields",
            notes.dropped.join(", ")
        )
    });
    let notes = placed.into_iter().chain(dropped);
    let warnings = effects.iter().cloned().chain(notes);
    let warnings = warnings.chain(of_document(document, restrictions));
    warnings.take(MAX_WARNINGS).collect()
}
