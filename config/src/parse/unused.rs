//! Warnings of templates and rules that never apply: an earlier one takes all that they match.

use std::{collections::HashMap, iter};

use doorman_openapi::OnLimit;

use super::field::Entry;
use crate::{
    Rule, Template,
    diagnostic::{Diagnostic, Quoted},
};

/// The steps that all comparisons of globs in one document may take: a fraction of a second, for
/// thousands of globs with wildcards at the start. Beyond them nothing is found.
pub(crate) const MAX_STEPS: usize = 1_000_000;

/// Warns of templates that an earlier glob covers. A resource finds the template of its own name
/// first, so a name is never covered.
pub(super) fn templates(templates: &[Entry<'_, Template>]) -> Vec<Diagnostic> {
    let mut steps = MAX_STEPS;
    // A glob covers only globs that start with its literal prefix.
    let mut by_prefix: HashMap<String, Vec<usize>> = HashMap::new();
    let mut warnings = Vec::new();
    for (index, Entry { item, value }) in templates.iter().enumerate() {
        let glob = &value.identifier_glob;
        let prefix = glob.prefix();
        if !glob.is_literal() {
            let ends = prefix.char_indices().map(|(end, _)| end);
            let earlier = ends
                .chain(iter::once(prefix.len()))
                .filter_map(|end| by_prefix.get(prefix.get(..end)?));
            let mut earlier: Vec<_> = earlier.flatten().copied().collect();
            earlier.sort_unstable();
            let covering = earlier.into_iter().find_map(|at| {
                let earlier = &templates.get(at)?.value.identifier_glob;
                let covers = earlier.is_superset_within(&mut steps, glob);
                covers.then_some((at, earlier))
            });
            if let Some((at, earlier)) = covering {
                warnings.push(item.diagnostic(format!(
                    "never matches: resources[{at}] {} comes first and matches everything that it \
                     matches",
                    Quoted(earlier.as_str())
                )));
            }
        }
        by_prefix.entry(prefix).or_default().push(index);
    }
    warnings
}

/// Warns of rules whose requests an earlier rule exempts.
pub(super) fn rules(rules: &[Entry<'_, Rule>]) -> Vec<Diagnostic> {
    let mut steps = MAX_STEPS;
    let mut exempting: Vec<(usize, &Rule)> = Vec::new();
    let mut warnings = Vec::new();
    for (index, Entry { item, value: rule }) in rules.iter().enumerate() {
        let mut earlier = exempting.iter();
        if let Some((at, earlier)) = earlier.find(|(_, it)| covers(it, rule, &mut steps)) {
            let name = earlier.definition.name.as_str();
            warnings.push(item.diagnostic(format!(
                "never applies: rules[{at}] {} comes first and exempts all of its requests",
                Quoted(name)
            )));
        }
        if rule.definition.on_limit == OnLimit::Exempt {
            exempting.push((index, rule));
        }
    }
    warnings
}

/// Whether `earlier` surely matches every request that `rule` matches.
fn covers(earlier: &Rule, rule: &Rule, steps: &mut usize) -> bool {
    let covers_methods = match (&earlier.definition.methods, &rule.definition.methods) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(earlier), Some(methods)) => methods.iter().all(|method| {
            // GET includes HEAD.
            earlier.contains(method) || (method == "HEAD" && earlier.iter().any(|it| it == "GET"))
        }),
    };
    let covers_paths = match (&earlier.definition.path, &rule.definition.path) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(earlier), Some(path)) => covers_path(earlier, path),
    };
    covers_methods && covers_paths && earlier.services.is_superset_within(steps, &rule.services)
}

/// Whether a path template surely matches every path that another matches, segment by segment.
fn covers_path(earlier: &str, path: &str) -> bool {
    let (mut earlier, mut path) = (earlier.split('/'), path.split('/'));
    loop {
        match (
            earlier.next().map(Segment::of),
            path.next().map(Segment::of),
        ) {
            (None, None) => return true,
            // It may contain slashes, but is not empty.
            (Some(Segment::Rest), Some(rest)) => return rest != Segment::Text(""),
            (Some(Segment::Any), Some(Segment::Text(text) | Segment::Other(text)))
                if !text.is_empty() => {}
            (Some(Segment::Any), Some(Segment::Any)) => {}
            (Some(earlier), Some(segment))
                if earlier == segment && !matches!(earlier, Segment::Any | Segment::Rest) => {}
            _ => return false,
        }
    }
}

/// A segment of a path template.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Segment<'t> {
    Text(&'t str),
    /// `{name}`: not empty.
    Any,
    /// `{*name}`
    Rest,
    /// A part of it is in braces, or a brace is escaped.
    Other(&'t str),
}

impl<'t> Segment<'t> {
    fn of(text: &'t str) -> Self {
        let name = text.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
        match name {
            None if text.contains(['{', '}']) => Self::Other(text),
            None => Self::Text(text),
            Some(name) if name.contains(['{', '}']) => Self::Other(text),
            Some(name) if name.starts_with('*') => Self::Rest,
            Some(_) => Self::Any,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Document;

    fn warnings(text: &str) -> Vec<String> {
        let document = Document::parse(text).unwrap_or_else(|errors| panic!("{errors}"));
        let warnings = document.warnings().iter();
        let warnings = warnings.filter(|it| !it.is_of_whole_document());
        warnings.map(ToString::to_string).collect()
    }

    /// The warnings of templates with these globs, in their order.
    fn of_globs(globs: &[&str]) -> Vec<String> {
        let entries = globs.iter().map(|glob| {
            format!("- {{identifier_glob: '{glob}', capacity: 1, algorithm: {{kind: STATIC}}}}\n")
        });
        warnings(&format!("resources:\n{}", entries.collect::<String>()))
    }

    #[test]
    fn template_behind_a_glob_that_covers_it_has_a_warning() {
        assert_eq!(
            of_globs(&["tenant/*", "db", "tenant/sb*", "*"]),
            [
                r#"4:3: resources[2] "tenant/sb*": never matches: resources[0] "tenant/*" comes first and matches everything that it matches"#
            ]
        );
        for globs in [
            &["a*", "a**"][..],
            &["*a*", "b[a]*"],
            &["a/*", r"a/b\*"],
            &["x", "*b*", "ab?", "*"],
            &["?*", "*"],
        ] {
            let expected = usize::from(globs != ["?*", "*"]);
            assert_eq!(of_globs(globs).len(), expected, "{globs:?}");
        }
    }

    #[test]
    fn template_that_matches_something_has_no_warning() {
        for globs in [
            &["tenant/sb*", "tenant/*", "*"][..],
            &["tenant/*", "tenant/acme", "*"],
            &["*a", "a*", "*"],
            &["a", "b?", "a*"],
            // Each alone covers only a part.
            &["[ab]*", "[c-z]*", "[a-z]*"],
        ] {
            assert_eq!(of_globs(globs), [""; 0], "{globs:?}");
        }
    }

    #[test]
    fn many_globs_are_compared_in_bounded_time() {
        let globs: Vec<_> = (0..3_000).map(|n| format!("*{n}*?*x")).collect();
        of_globs(&globs.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// The warnings of two rules of which the first exempts.
    fn of_rules(first: &str, second: &str) -> Vec<String> {
        warnings(&format!(
            "resources: [{{identifier_glob: '*', capacity: 1, algorithm: {{kind: STATIC}}}}]\nrules:\n\
             - {{name: first, on_limit: {{action: exempt}}, {first}}}\n\
             - {{name: second, resource: api, {second}}}\n"
        ))
    }

    #[test]
    fn rule_behind_an_exemption_of_all_its_requests_has_a_warning() {
        assert_eq!(
            of_rules("service: '*'", "service: shop, path: /a"),
            [
                r#"4:3: rules[1] "second": never applies: rules[0] "first" comes first and exempts all of its requests"#
            ]
        );
        for (first, second) in [
            ("service: 's*'", "service: 'sh*'"),
            ("service: s, methods: [GET]", "service: s, methods: [HEAD]"),
            (
                "service: s, path: /a",
                "service: s, path: /a, methods: [GET]",
            ),
            ("service: s, path: '/a/{x}'", "service: s, path: '/a/{y}'"),
            ("service: s, path: '/a/{x}'", "service: s, path: '/a/b'"),
            ("service: s, path: '/a/{x}'", "service: s, path: '/a/v{y}'"),
            ("service: s, path: '/a/v{x}'", "service: s, path: '/a/v{x}'"),
            ("service: s, path: '/{*x}'", "service: s, path: '/a/{y}'"),
            ("service: s, path: '/{*x}'", "service: s, path: '/a/'"),
            ("service: s, path: '/a/{*x}'", "service: s, path: '/a/{*y}'"),
            ("service: s", "service: s, on_limit: {action: exempt}"),
        ] {
            assert_eq!(of_rules(first, second).len(), 1, "{first}; {second}");
        }
    }

    #[test]
    fn rule_that_applies_to_something_has_no_warning() {
        for (first, second) in [
            ("service: a", "service: '*'"),
            ("service: s, methods: [HEAD]", "service: s, methods: [GET]"),
            ("service: s, methods: [GET]", "service: s"),
            ("service: s, path: /a", "service: s"),
            ("service: s, path: /a", "service: s, path: /a/"),
            ("service: s, path: '/a/{x}'", "service: s, path: '/a/{*y}'"),
            ("service: s, path: '/a/{x}'", "service: s, path: '/a/'"),
            ("service: s, path: '/a/{x}'", "service: s, path: '/a/b/c'"),
            ("service: s, path: '/{*x}'", "service: s, path: '/'"),
            ("service: s, path: '/a/b'", "service: s, path: '/a/{y}'"),
        ] {
            assert_eq!(of_rules(first, second), [""; 0], "{first}; {second}");
        }
        let shadow = "resources: [{identifier_glob: '*', capacity: 1, algorithm: {kind: STATIC}}]\n\
            rules:\n- {name: a, service: s, resource: api, on_limit: {action: shadow}}\n\
            - {name: b, service: s, resource: api}\n";
        assert_eq!(warnings(shadow), [""; 0]);
    }
}
