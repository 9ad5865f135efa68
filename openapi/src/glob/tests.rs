use proptest::prelude::*;

use super::{Glob, GlobSet, InvalidGlob};

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
fn wildcards_classes_and_escapes_match() {
    check("db", &["db"], &["", "d", "dbx", "xdb", "DB"]);
    // A run matches any characters, `/` included, or none.
    check("*", &["", "a", "a/b/c", "ü"], &[]);
    check(
        "tenant/*",
        &["tenant/", "tenant/acme", "tenant/a/b"],
        &["tenant", "x/tenant/a"],
    );
    check("*/db", &["/db", "a/db", "a/b/db"], &["db", "a/dbx"]);
    check("a*b*c", &["abc", "a/b/c", "abcbc"], &["ab", "acb", "abcd"]);
    // Two stars are one run; a `/` beside them is literal.
    check("**/db", &["/db", "a/b/db"], &["db"]);
    check("a/**", &["a/", "a/b/c"], &["a"]);
    // One character may have several bytes.
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
    // Shell syntax without a meaning here.
    check("{a,b}", &["{a,b}"], &["a", "b"]);
    check("!a#$~.(x)|+^", &["!a#$~.(x)|+^"], &["a"]);
    check("a]", &["a]"], &["a"]);
}

#[test]
fn invalid_globs_are_rejected() {
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
        ("[z-a]", "ascending"),
        ("[a\\", "`\\` at its end"),
        ("a\\", "`\\` at its end"),
    ] {
        let error: InvalidGlob = Glob::new(text).unwrap_err();
        assert!(error.to_string().contains(expected), "{text:?}: {error}");
    }
    assert!(Glob::new(&"x".repeat(1024)).is_ok());
}

#[test]
fn only_stars_are_a_catch_all() {
    for text in ["*", "**", "*****"] {
        assert!(Glob::new(text).unwrap().is_catch_all(), "{text}");
    }
    for text in ["?", "*?", "**a", "\\*", "[*]"] {
        assert!(!Glob::new(text).unwrap().is_catch_all(), "{text}");
    }
}

#[test]
fn hostile_glob_takes_bounded_time() {
    let glob = Glob::new(&"*a".repeat(512)).unwrap();
    assert!(!glob.matches(&"a".repeat(256)));
    let glob = Glob::new(&format!("{}b", "a*".repeat(500))).unwrap();
    assert!(!glob.matches(&"a".repeat(256)));
}

/// A recursive reference matcher without classes and escapes.
fn matches_by_definition(glob: &[char], text: &[char]) -> bool {
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
    fn agrees_with_the_reference_matcher(glob in "[ab/ü?*]{1,8}", text in "[ab/ü]{0,10}") {
        let by_definition = matches_by_definition(
            &glob.chars().collect::<Vec<_>>(),
            &text.chars().collect::<Vec<_>>(),
        );
        prop_assert_eq!(Glob::new(&glob).unwrap().matches(&text), by_definition);
    }

    #[test]
    fn seek_skips_no_match(
        glob in "[ab/ü?*]{1,6}", from in "[ab/ü]{0,6}", text in "[ab/ü]{0,6}"
    ) {
        let glob = Glob::new(&glob).unwrap();
        let bound = glob.seek(&from);
        if let Some(bound) = &bound {
            prop_assert!(**bound >= *from);
            prop_assert_eq!(glob.seek(bound), Some(bound.clone()));
        }
        if glob.matches(&text) && text >= from {
            prop_assert!(bound.is_some_and(|bound| *bound <= *text));
        }
    }

    #[test]
    fn no_text_panics(glob in "\\PC{0,40}|[\\[\\]\\\\^!*?a-]{0,20}", text in "\\PC{0,40}") {
        if let Ok(glob) = Glob::new(&glob) {
            prop_assert!(glob.matches(&text) || !glob.is_catch_all());
        }
    }

    #[test]
    fn escaped_text_matches_only_itself(text in "\\PC{1,20}", other in "\\PC{0,20}") {
        let escaped: String = text.chars().flat_map(|char| ['\\', char]).collect();
        let glob = Glob::new(&escaped).unwrap();
        prop_assert!(glob.matches(&text));
        prop_assert_eq!(glob.matches(&other), text == other);
    }
}

fn glob(text: &str) -> Glob {
    Glob::new(text).unwrap()
}

#[test]
fn superset_matches_all_texts_of_the_subset() {
    for (outer, inner) in [
        ("*", "*"),
        ("*", "a/*[b]?"),
        ("a*", "a"),
        ("a*", "a*b"),
        ("a*c*", "abc"),
        ("*b*", "a*b?"),
        ("a?", "a?"),
        ("a?", "a[bc]"),
        ("[a-c]*", "b*"),
        ("[a-c]x", "[a-c]x"),
        ("*a", "*aa"),
        // Equal, but spelled differently.
        ("tenant/*", "tenant/**"),
        ("a?*", "a*?"),
        ("a*?", "a?*"),
        ("*a*", "**a**"),
        ("[a]b", "ab"),
        ("\\a", "a"),
        ("[a-cx]", "[xa-c]"),
        ("[a-bc-d]", "[a-d]"),
        ("[!b]", "[^b]"),
        // Several tokens cover one.
        ("[a-z]*", "[b-y]?"),
        ("[!a]", "[b-z]"),
        ("?*?", "*??"),
        ("*[ab]*", "*a*b*"),
        ("*a*", "*[a]?"),
        ("[!a]*", "[b-z]*a?"),
        ("*ab*", "*a*ab"),
        ("a*b*c", "a*bb*c"),
    ] {
        assert!(glob(outer).is_superset_of(&glob(inner)), "{outer} {inner}");
    }
    for (outer, inner) in [
        ("a", "*"),
        ("a", "?"),
        ("a*", "*"),
        ("a*", "?*"),
        ("tenant/a/*", "tenant/*"),
        ("tenant/a/*", "tenant/a"),
        ("tenant/a/*", "tenant/a*"),
        ("a*b", "a*"),
        ("?", "*"),
        ("??", "a"),
        ("[a-c]", "d"),
        ("[a-c]", "?"),
        ("[!a]", "a"),
        ("\\*", "*"),
        ("?*", "*"),
        ("*ab*", "*a*b*"),
        ("*a?", "*a*"),
        ("[!a]*", "*"),
        ("[a-c]*", "[a-d]*"),
        ("*a*b", "*b*a"),
    ] {
        assert!(!glob(outer).is_superset_of(&glob(inner)), "{outer} {inner}");
    }
}

proptest! {
    #[test]
    fn superset_matches_what_the_subset_matches(
        outer in "([abc*?]|\\[ab\\]){1,5}", inner in "([abc*?]|\\[ab\\]){1,5}", text in "[abcd]{0,6}"
    ) {
        let (outer, inner) = (glob(&outer), glob(&inner));
        if outer.is_superset_of(&inner) && inner.matches(&text) {
            prop_assert!(outer.matches(&text));
        }
        // A literal is a subset exactly if it matches.
        if !text.is_empty() {
            prop_assert_eq!(outer.is_superset_of(&glob(&text)), outer.matches(&text));
        }
        prop_assert!(outer.is_superset_of(&outer));
    }

    /// Where the answer is no, a short text shows it.
    #[test]
    fn glob_that_is_no_superset_misses_a_text(
        outer in "([ab*?]|\\\\a|\\[ab\\]|\\[!a\\]|\\[b-c\\]){1,4}",
        inner in "([ab*?]|\\\\a|\\[ab\\]|\\[!a\\]|\\[b-c\\]){1,4}"
    ) {
        let (outer, inner) = (glob(&outer), glob(&inner));
        let missed = texts("abcd", 6).find(|text| inner.matches(text) && !outer.matches(text));
        prop_assert_eq!(outer.is_superset_of(&inner), missed.is_none(), "{:?}", missed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn superset_of_hostile_globs_takes_bounded_time(
        outer in "(\\*|[ab]|\\?{1,9}){1,80}", inner in "(\\*|[ab]|\\?{1,9}){1,80}"
    ) {
        let (outer, inner) = (glob(&outer), glob(&inner));
        let mut steps = 1000;
        let within = outer.is_superset_within(&mut steps, &inner);
        prop_assert!(!within || outer.is_superset_of(&inner));
        prop_assert!(outer.is_superset_of(&outer));
    }
}

/// All texts of these characters up to a length.
fn texts(alphabet: &str, length: u32) -> impl Iterator<Item = String> {
    let alphabet: Vec<_> = alphabet.chars().collect();
    (0..=length).flat_map(move |length| {
        let alphabet = alphabet.clone();
        (0..alphabet.len().pow(length)).map(move |number| {
            let digit = |place| number / alphabet.len().pow(place) % alphabet.len();
            (0..length).map(|place| alphabet[digit(place)]).collect()
        })
    })
}

#[test]
fn exhausted_steps_are_no_superset() {
    let mut steps = 2;
    assert!(glob("*").is_superset_within(&mut steps, &glob("a")));
    assert!(!glob("abc").is_superset_within(&mut steps, &glob("abc")));
    assert_eq!(steps, 0);
    assert!(!glob("*").is_superset_within(&mut steps, &glob("a")));
}

#[test]
fn only_globs_without_syntax_are_literal() {
    for text in ["a", "tenant/acme", "]", "!", "ü"] {
        assert!(glob(text).is_literal(), "{text}");
    }
    for text in ["*", "a?", "[a]", "\\a", "a\\*"] {
        assert!(!glob(text).is_literal(), "{text}");
    }
    assert_eq!(glob("a\\*/b?c").prefix(), "a*/b");
}

#[test]
fn set_has_at_most_64_globs() {
    assert!(GlobSet::new(vec!["a"; 64]).is_ok());
    assert!(GlobSet::new(vec!["a"; 65]).is_err());
    assert!(!GlobSet::default().matches("a"));
}
