//! Warnings in responses: those of a document, and of an edit of it.

use std::collections::BTreeSet;

use doorman_config::{Diagnostic, Document, EditNotes, Restrictions};

/// The most warnings in a response.
const MAX_WARNINGS: usize = 100;

/// The warnings of a document. A restricted caller gets none of single entries: they may quote what
/// it must not see.
pub(crate) fn of_document(document: &Document, restrictions: &Restrictions) -> Vec<String> {
    let warnings = visible(document, restrictions).take(MAX_WARNINGS);
    warnings.map(ToString::to_string).collect()
}

fn visible<'d>(
    document: &'d Document,
    restrictions: &Restrictions,
) -> impl Iterator<Item = &'d Diagnostic> {
    let sees_all = restrictions.is_unrestricted();
    let warnings = document.warnings().iter();
    warnings.filter(move |it| sees_all || it.is_of_whole_document())
}

/// The warnings of the effects of an edit on live resources, the notes on it, the warnings that the
/// resulting document has and the one before had not, and the number of the others.
pub(crate) fn of_edit(
    effects: &[String],
    notes: &EditNotes,
    [before, after]: [&Document; 2],
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
    let known: BTreeSet<_> = if notes.replaces_all {
        BTreeSet::new()
    } else {
        let before = visible(before, restrictions);
        before.map(Diagnostic::unnumbered).collect()
    };
    let (old, new): (Vec<_>, Vec<_>) =
        visible(after, restrictions).partition(|it| known.contains(&it.unnumbered()));
    let others = (!old.is_empty()).then(|| {
        let noun = if old.len() == 1 {
            "warning"
        } else {
            "warnings"
        };
        // `doorman export` needs a token for the whole document.
        let advice = if restrictions.is_unrestricted() {
            "; doorman export > limits.yaml and doorman check limits.yaml list them"
        } else {
            ""
        };
        format!(
            "the document has {} more {noun}, as before{advice}",
            old.len()
        )
    });
    let warnings = effects.iter().cloned().chain(placed).chain(dropped);
    let warnings = warnings.chain(new.into_iter().map(ToString::to_string));
    let rest = MAX_WARNINGS - usize::from(others.is_some());
    warnings.take(rest).chain(others).collect()
}
