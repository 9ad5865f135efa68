//! Bounds: whose and what a token's bearer may touch.

use std::borrow::Cow;

use crate::{Glob, InvalidGlob, Rule};

/// Several globs: a text matches when it matches one of them. None of them matches nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Globs(Box<[Glob]>);

impl Globs {
    /// The most of them, since each decision goes through them all.
    pub const MOST: usize = 64;

    /// Takes texts for globs.
    ///
    /// # Errors
    /// [`InvalidGlob`] when one of them is none, or there are more than [`MOST`](Self::MOST).
    pub fn new(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, InvalidGlob> {
        let globs = texts.into_iter().map(|text| Glob::new(text.as_ref()));
        Self::of(globs.collect::<Result<_, _>>()?)
    }

    pub(crate) fn of(globs: Vec<Glob>) -> Result<Self, InvalidGlob> {
        if globs.len() > Self::MOST {
            return Err(InvalidGlob("at most 64 globs"));
        }
        Ok(Self(globs.into()))
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether one of them matches the whole text.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|glob| glob.matches(text))
    }

    /// Where to go on in a list that is in the order of bytes: the first text from this one on that begins as one of them wants it. It may
    /// say too early a one; `None` when none follows that one of them matches.
    #[must_use]
    pub fn first_from<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        self.0.iter().filter_map(|glob| glob.first_from(text)).min()
    }

    /// Whether one of them [covers](Glob::covers) another glob.
    #[must_use]
    pub fn cover(&self, other: &Glob) -> bool {
        self.0.iter().any(|glob| glob.covers(other))
    }
}

/// What a token is bound to. What is `None` is not bound; the default is bound by nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Bounds {
    /// The clients, or nodes, in whose name its bearer leases, and whose leases it sees.
    pub clients: Option<Globs>,
    /// The resources that it leases, sees and describes.
    pub resources: Option<Globs>,
    /// The services whose rules it reads and writes; what those spend, and how urgently, is bound by the others.
    pub services: Option<Globs>,
    /// The highest priority that it asks with, and that its rules give.
    pub max_priority: Option<i32>,
}

impl Bounds {
    /// Whether nothing is bound.
    #[must_use]
    pub fn are_none(&self) -> bool {
        let Self {
            clients,
            resources,
            services,
            max_priority,
        } = self;
        clients.is_none() && resources.is_none() && services.is_none() && max_priority.is_none()
    }

    /// Whether a client, or node, of this name is within.
    #[must_use]
    pub fn allow_client(&self, name: &str) -> bool {
        matches(self.clients.as_ref(), name)
    }

    /// Whether a resource is within.
    #[must_use]
    pub fn allow_resource(&self, id: &str) -> bool {
        matches(self.resources.as_ref(), id)
    }

    /// Whether the service of this name is within.
    #[must_use]
    pub fn allow_service(&self, name: &str) -> bool {
        matches(self.services.as_ref(), name)
    }

    /// Whether one may ask with this priority.
    #[must_use]
    pub fn allow_priority(&self, priority: i32) -> bool {
        self.max_priority.is_none_or(|most| priority <= most)
    }

    /// Whether all resources that a template is for are within, so that it may be seen and changed.
    ///
    /// Who is bound in anything but not in this owns no template: what a tenant's token does not name belongs to others, too. The glob must
    /// be within as a text, too, as a template is also [looked up](crate::Document::lookup) to the letter: `\a` is for the resource `a` and
    /// for the one named `\a`.
    #[must_use]
    pub fn own_template(&self, identifier_glob: &Glob) -> bool {
        self.own(self.resources.as_ref(), identifier_glob)
            && self.allow_resource(identifier_glob.as_str())
    }

    /// Whether all services that a rule is for are within, so that it may be seen; as for templates.
    #[must_use]
    pub fn own_services(&self, rule: &Rule) -> bool {
        self.own(self.services.as_ref(), &rule.services)
    }

    /// Whether all resources that requests may spend by a rule are within.
    ///
    /// A rule makes services lease in their own name, which are bound otherwise or not at all: who writes it reaches what they reach.
    #[must_use]
    pub fn allow_spending(&self, rule: &Rule) -> bool {
        self.resources
            .as_ref()
            .is_none_or(|bound| rule.spends_within(bound))
    }

    fn own(&self, bound: Option<&Globs>, glob: &Glob) -> bool {
        match bound {
            Some(globs) => globs.cover(glob),
            None => self.are_none(),
        }
    }
}

fn matches(bound: Option<&Globs>, text: &str) -> bool {
    bound.is_none_or(|globs| globs.matches(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Document;

    fn globs(texts: &[&str]) -> Option<Globs> {
        Some(Globs::new(texts).unwrap())
    }

    fn rule(service: &str, resource: &str) -> Rule {
        let text = format!(
            "resources: []\nrules: [{{name: a, service: {service:?}, resource: {resource:?}}}]"
        );
        Document::parse(&text).unwrap().rules()[0].clone()
    }

    #[test]
    fn what_is_not_bound_is_allowed() {
        let free = Bounds::default();
        assert!(free.are_none());
        assert!(free.allow_client("a") && free.allow_resource("b") && free.allow_service("c"));
        assert!(free.allow_priority(i32::MAX));
        assert!(free.own_template(&Glob::new("*").unwrap()));
        let all = rule("*", "{host}");
        assert!(free.own_services(&all) && free.allow_spending(&all));
    }

    #[test]
    fn who_is_bound_owns_only_what_is_named() {
        let tenant = Bounds {
            resources: globs(&["tenant/a", "tenant/a/*"]),
            ..Bounds::default()
        };
        assert!(tenant.allow_resource("tenant/a/db") && !tenant.allow_resource("tenant/b"));
        assert!(tenant.own_template(&Glob::new("tenant/a/?").unwrap()));
        assert!(!tenant.own_template(&Glob::new("tenant/*").unwrap()));
        // As a pattern it is within, but it is also the name of a resource that is not.
        assert!(!tenant.own_template(&Glob::new(r"\tenant/a/db").unwrap()));
        assert!(tenant.own_template(&Glob::new(r"tenant/a/\*").unwrap()));
        assert!(!tenant.own_services(&rule("orders", "tenant/a")));
        let nobody = Bounds {
            clients: globs(&[]),
            max_priority: Some(3),
            ..Bounds::default()
        };
        assert!(!nobody.allow_client("a"));
        assert!(nobody.allow_priority(3) && !nobody.allow_priority(4));
        assert!(!nobody.own_template(&Glob::new("a").unwrap()));
        assert!(Globs::new(vec!["a"; 65]).is_err());
    }

    #[test]
    fn a_rule_spends_what_any_value_of_its_placeholders_may_lead_to() {
        let bounds = Bounds {
            resources: globs(&["a/*", r"b\*c"]),
            ..Bounds::default()
        };
        for (resource, within) in [
            ("a/api", true),
            ("a/{header:x-user}", true),
            ("a/{method}/{route}", true),
            ("a/*", true),
            ("a{header:x-user}", false),
            ("{header:x-user}", false),
            ("{header:x-user}/a/", false),
            ("c/api", false),
            // Text stands for itself.
            ("b*c", true),
            ("b?c", false),
            ("bbc", false),
            (r"b\*c", false),
            ("[ab]/api", false),
        ] {
            let rule = rule("s", resource);
            assert_eq!(bounds.allow_spending(&rule), within, "{resource}");
        }
        let text = "resources: []\nrules: [{name: a, service: s, on_limit: {action: exempt}}]";
        assert!(bounds.allow_spending(&Document::parse(text).unwrap().rules()[0]));
    }

    proptest! {
        /// Two tenants that are bound to what begins with their own name have nothing in common.
        #[test]
        fn tenants_do_not_meet(
            a in "[a-z]{1,4}", b in "[a-z]{1,4}", id in "[a-z*?/]{0,6}", priority in any::<i32>()
        ) {
            prop_assume!(a != b);
            let of = |name: &str| {
                let all = globs(&[&format!("{name}/*")]);
                Bounds { clients: all.clone(), resources: all.clone(), services: all, max_priority: Some(priority) }
            };
            let (of_a, of_b) = (of(&a), of(&b));
            let id = format!("{b}/{id}");
            prop_assert!(of_b.allow_client(&id) && of_b.allow_resource(&id) && of_b.allow_service(&id));
            prop_assert!(!of_a.allow_client(&id) && !of_a.allow_resource(&id) && !of_a.allow_service(&id));
            let glob = Glob::new(&id).unwrap();
            prop_assert!(of_b.own_template(&glob) && !of_a.own_template(&glob));
            let rule = rule(&id, &id);
            prop_assert!(of_b.own_services(&rule) && of_b.allow_spending(&rule));
            prop_assert!(!of_a.own_services(&rule) && !of_a.allow_spending(&rule));
        }
    }
}
