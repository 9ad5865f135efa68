//! Restrictions: whose and what a token's bearer may touch.

use doorman_openapi::{Glob, GlobSet};

use crate::Rule;

/// What a token is bound to. What is `None` is not bound; the default is bound by nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Restrictions {
    /// The clients, or nodes, in whose name its bearer leases, and whose leases it sees.
    pub clients: Option<GlobSet>,
    /// The resources that it leases, sees and describes.
    pub resources: Option<GlobSet>,
    /// The services whose rules it reads and writes; what those spend, and how urgently, is bound by the others.
    pub services: Option<GlobSet>,
    /// The highest priority that it asks with, and that its rules give.
    pub max_priority: Option<i32>,
}

impl Restrictions {
    /// Whether nothing is bound.
    #[must_use]
    pub fn is_unrestricted(&self) -> bool {
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
    pub fn allows_client(&self, name: &str) -> bool {
        matches(self.clients.as_ref(), name)
    }

    /// Whether a resource is within.
    #[must_use]
    pub fn allows_resource(&self, id: &str) -> bool {
        matches(self.resources.as_ref(), id)
    }

    /// Whether the service of this name is within.
    #[must_use]
    pub fn allows_service(&self, name: &str) -> bool {
        matches(self.services.as_ref(), name)
    }

    /// Whether one may ask with this priority.
    #[must_use]
    pub fn allows_priority(&self, priority: i32) -> bool {
        self.max_priority.is_none_or(|most| priority <= most)
    }

    /// Whether all resources that a template is for are within, so that it may be seen and changed.
    ///
    /// Who is bound in anything but not in this owns no template: what a tenant's token does not name belongs to others, too. The glob must
    /// be within as a text, too, as a template is also [looked up](crate::Document::lookup) to the letter: `\a` is for the resource `a` and
    /// for the one named `\a`.
    #[must_use]
    pub fn covers_template(&self, identifier_glob: &Glob) -> bool {
        self.own(self.resources.as_ref(), identifier_glob)
            && self.allows_resource(identifier_glob.as_str())
    }

    /// Whether all services that a rule is for are within, so that it may be seen; as for templates.
    #[must_use]
    pub fn covers_services_of(&self, rule: &Rule) -> bool {
        self.own(self.services.as_ref(), &rule.services)
    }

    /// Whether all resources that requests may spend by a rule are within.
    ///
    /// A rule makes services lease in their own name, which are bound otherwise or not at all: who writes it reaches what they reach.
    #[must_use]
    pub fn covers_resources_of(&self, rule: &Rule) -> bool {
        self.resources
            .as_ref()
            .is_none_or(|bound| rule.spends_within(bound))
    }

    fn own(&self, bound: Option<&GlobSet>, glob: &Glob) -> bool {
        match bound {
            Some(globs) => globs.covers(glob),
            None => self.is_unrestricted(),
        }
    }
}

fn matches(bound: Option<&GlobSet>, text: &str) -> bool {
    bound.is_none_or(|globs| globs.matches(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Document;

    fn globs(texts: &[&str]) -> Option<GlobSet> {
        Some(GlobSet::new(texts).unwrap())
    }

    fn rule(service: &str, resource: &str) -> Rule {
        let text = format!(
            "resources: []\nrules: [{{name: a, service: {service:?}, resource: {resource:?}}}]"
        );
        Document::parse(&text).unwrap().rules()[0].clone()
    }

    #[test]
    fn what_is_not_bound_is_allowed() {
        let free = Restrictions::default();
        assert!(free.is_unrestricted());
        assert!(free.allows_client("a") && free.allows_resource("b") && free.allows_service("c"));
        assert!(free.allows_priority(i32::MAX));
        assert!(free.covers_template(&Glob::new("*").unwrap()));
        let all = rule("*", "{host}");
        assert!(free.covers_services_of(&all) && free.covers_resources_of(&all));
    }

    #[test]
    fn who_is_bound_owns_only_what_is_named() {
        let tenant = Restrictions {
            resources: globs(&["tenant/a", "tenant/a/*"]),
            ..Restrictions::default()
        };
        assert!(tenant.allows_resource("tenant/a/db") && !tenant.allows_resource("tenant/b"));
        assert!(tenant.covers_template(&Glob::new("tenant/a/?").unwrap()));
        assert!(!tenant.covers_template(&Glob::new("tenant/*").unwrap()));
        // As a pattern it is within, but it is also the name of a resource that is not.
        assert!(!tenant.covers_template(&Glob::new(r"\tenant/a/db").unwrap()));
        assert!(tenant.covers_template(&Glob::new(r"tenant/a/\*").unwrap()));
        assert!(!tenant.covers_services_of(&rule("orders", "tenant/a")));
        let nobody = Restrictions {
            clients: globs(&[]),
            max_priority: Some(3),
            ..Restrictions::default()
        };
        assert!(!nobody.allows_client("a"));
        assert!(nobody.allows_priority(3) && !nobody.allows_priority(4));
        assert!(!nobody.covers_template(&Glob::new("a").unwrap()));
    }

    #[test]
    fn a_rule_spends_what_any_value_of_its_placeholders_may_lead_to() {
        let restrictions = Restrictions {
            resources: globs(&["a/*", r"b\*c"]),
            ..Restrictions::default()
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
            assert_eq!(
                restrictions.covers_resources_of(&rule),
                within,
                "{resource}"
            );
        }
        let text = "resources: []\nrules: [{name: a, service: s, on_limit: {action: exempt}}]";
        assert!(restrictions.covers_resources_of(&Document::parse(text).unwrap().rules()[0]));
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
                Restrictions { clients: all.clone(), resources: all.clone(), services: all, max_priority: Some(priority) }
            };
            let (of_a, of_b) = (of(&a), of(&b));
            let id = format!("{b}/{id}");
            prop_assert!(of_b.allows_client(&id) && of_b.allows_resource(&id) && of_b.allows_service(&id));
            prop_assert!(!of_a.allows_client(&id) && !of_a.allows_resource(&id) && !of_a.allows_service(&id));
            let glob = Glob::new(&id).unwrap();
            prop_assert!(of_b.covers_template(&glob) && !of_a.covers_template(&glob));
            let rule = rule(&id, &id);
            prop_assert!(of_b.covers_services_of(&rule) && of_b.covers_resources_of(&rule));
            prop_assert!(!of_a.covers_services_of(&rule) && !of_a.covers_resources_of(&rule));
        }
    }
}
