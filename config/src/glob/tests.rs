use proptest::prelude::*;

use super::{Glob, InvalidGlob};

fn check(glob: &str, matching: &[&str], others: &[&str]) {
    let glob = Glob::new(glob).unwrap();
    for text in matching {
        assert!(glob.matches(text), "{glob} should match {text}");
    }
    for text in others {
        assert!(!glob.matches(text), "{glob} should not match {text}");
    }
}

#[test]
fn matches_as_the_documentation_says() {
    check("db", &["db"], &["", "d", "dbx", "xdb", "DB"]);
    // A run: any characters, a slash included, also none.
    check("*", &["", "a", "a/b/c", "ü"], &[]);
    check(
        "tenant/*",
        &["tenant/", "tenant/acme", "tenant/a/b"],
        &["tenant", "x/tenant/a"],
    );
    check("*/db", &["/db", "a/db", "a/b/db"], &["db", "a/dbx"]);
    check("a*b*c", &["abc", "a/b/c", "abcbc"], &["ab", "acb", "abcd"]);
    // No double star: it is one run, and a slash beside it must be there.
    check("**/db", &["/db", "a/b/db"], &["db"]);
    check("a/**", &["a/", "a/b/c"], &["a"]);
    // One character, of any number of bytes.
    check("a?", &["ab", "aü", "a/", "a?", "a日"], &["a", "abc"]);
    // Classes.
    check(
        "db-[0-9]",
        &["db-0", "db-7"],
        &["db-", "db-10", "db-x", "db-/"],
    );
    check("[abc]", &["a", "b", "c"], &["", "d", "ab"]);
    check("[a-cx-z]", &["b", "y"], &["d", "-"]);
    check("[^a]", &["b", "/", "ü"], &["a", ""]);
    check("[!a]", &["b", "/", "ü"], &["a", ""]);
    check("[a^!]", &["a", "^", "!"], &["b"]);
    check("[ä-ü]", &["ö"], &["o", "a"]);
    check("[]a]", &["]", "a"], &["b"]);
    check("[^]a]", &["b"], &["]", "a"]);
    check("[-a]", &["-", "a"], &["b"]);
    check("[a-]", &["-", "a"], &["b"]);
    check("[*?]", &["*", "?"], &["a"]);
    check("[a\\]]", &["a", "]"], &["\\", "a]"]);
    check("[\\a-\\c]", &["b"], &["\\", "-"]);
    check("[[]", &["["], &["]"]);
    // Escapes.
    check("\\*", &["*"], &["a", "\\*", ""]);
    check("\\a\\\\", &["a\\"], &["a"]);
    check("\\[a]", &["[a]"], &["a"]);
    // Characters that mean something to shells, but not here.
    check("{a,b}", &["{a,b}"], &["a", "b"]);
    check("!a#$~.(x)|+^", &["!a#$~.(x)|+^"], &["a"]);
    check("a]", &["a]"], &["a"]);
}

#[test]
fn refuses_what_is_not_a_glob() {
    for (text, expected) in [
        ("", "1 to 1024 bytes"),
        (&*"x".repeat(1025), "1 to 1024 bytes"),
        ("a\tb", "without control characters"),
        ("[", "closed"),
        ("[]", "closed"),
        ("[^]", "closed"),
        ("[a", "closed"),
        ("[a-", "closed"),
        ("a[b-", "closed"),
        ("[z-a]", "upwards"),
        ("[a\\", "`\\` at its end"),
        ("a\\", "`\\` at its end"),
    ] {
        let fault: InvalidGlob = Glob::new(text).unwrap_err();
        assert!(fault.to_string().contains(expected), "{text:?}: {fault}");
    }
    assert!(Glob::new(&"x".repeat(1024)).is_ok());
}

#[test]
fn knows_what_matches_everything() {
    for text in ["*", "**", "*****"] {
        assert!(Glob::new(text).unwrap().is_catch_all(), "{text}");
    }
    for text in ["?", "*?", "**a", "\\*", "[*]"] {
        assert!(!Glob::new(text).unwrap().is_catch_all(), "{text}");
    }
}

#[test]
fn a_hostile_glob_costs_no_more_than_the_product_of_the_lengths() {
    let glob = Glob::new(&"*a".repeat(512)).unwrap();
    assert!(!glob.matches(&"a".repeat(256)));
    let glob = Glob::new(&format!("{}b", "a*".repeat(500))).unwrap();
    assert!(!glob.matches(&"a".repeat(256)));
}

/// The definition of a match, without a thought for its cost. Knows no classes and no escapes.
pub(crate) fn matches_by_definition(glob: &[char], text: &[char]) -> bool {
    match (glob, text) {
        ([], []) => true,
        (['*', glob @ ..], _) => {
            (0..=text.len()).any(|taken| matches_by_definition(glob, &text[taken..]))
        }
        (['?', glob @ ..], [_, text @ ..]) => matches_by_definition(glob, text),
        ([wanted, glob @ ..], [char, text @ ..]) => {
            wanted == char && matches_by_definition(glob, text)
        }
        _ => false,
    }
}

proptest! {
    #[test]
    fn agrees_with_the_definition(glob in "[ab/ü?*]{1,8}", text in "[ab/ü]{0,10}") {
        let by_definition = matches_by_definition(
            &glob.chars().collect::<Vec<_>>(),
            &text.chars().collect::<Vec<_>>(),
        );
        prop_assert_eq!(Glob::new(&glob).unwrap().matches(&text), by_definition);
    }

    /// Who goes on there misses nothing, and goes ahead where nothing matches.
    #[test]
    fn nothing_that_matches_lies_before_where_it_goes_on(
        glob in "[ab/ü?*]{1,6}", from in "[ab/ü]{0,6}", text in "[ab/ü]{0,6}"
    ) {
        let glob = Glob::new(&glob).unwrap();
        let further = glob.seek(&from);
        if let Some(further) = &further {
            prop_assert!(**further >= *from);
            prop_assert_eq!(glob.seek(further), Some(further.clone()));
        }
        if glob.matches(&text) && text >= from {
            prop_assert!(further.is_some_and(|further| *further <= *text));
        }
    }

    #[test]
    fn takes_any_text_without_panicking(glob in "\\PC{0,40}|[\\[\\]\\\\^!*?a-]{0,20}", text in "\\PC{0,40}") {
        if let Ok(glob) = Glob::new(&glob) {
            prop_assert!(glob.matches(&text) || !glob.is_catch_all());
        }
    }

    #[test]
    fn an_escaped_text_matches_itself_alone(text in "\\PC{1,20}", other in "\\PC{0,20}") {
        let escaped: String = text.chars().flat_map(|char| ['\\', char]).collect();
        let glob = Glob::new(&escaped).unwrap();
        prop_assert!(glob.matches(&text));
        prop_assert_eq!(glob.matches(&other), text == other);
    }
}
