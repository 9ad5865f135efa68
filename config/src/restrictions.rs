//! Restrictions of a token: the clients, resources, services and priorities that it may use.

use std::{
    hash::{Hash, Hasher},
    num::NonZeroU32,
    sync::Arc,
};

use doorman_openapi::{AlgorithmKind, Capacity, FieldError, Glob, GlobSet, SafeCapacity, Unit};

use crate::{Rule, Template};

/// The restrictions of a token. A field that is `None` does not restrict; the default restricts
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Restrictions {
    /// The clients or nodes that it leases for, and whose leases it sees.
    pub clients: Option<GlobSet>,
    /// The resources that it leases, sees, and writes templates for.
    pub resources: Option<GlobSet>,
    /// The services whose rules it reads and writes. The other fields restrict these rules, too.
    pub services: Option<GlobSet>,
    /// The highest priority of its requests and rules.
    pub max_priority: Option<i32>,
    /// The highest capacity of its templates.
    pub max_capacity: Option<MaxCapacity>,
    /// The most clients and nodes that hold leases at once, for all tokens with equal restrictions
    /// together.
    pub max_clients: Option<NonZeroU32>,
}

/// The shortest lease under a highest capacity, in seconds.
const SHORTEST_LEASE: f64 = 5.0;

/// The highest capacity that a token may set: of a rate per second, of a gauge at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MaxCapacity(pub Capacity);

/// A capacity is a number, never NaN.
impl Eq for MaxCapacity {}

impl Hash for MaxCapacity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // 0.0 and -0.0 are equal.
        (self.0.get() + 0.0).to_bits().hash(state);
    }
}

impl Restrictions {
    /// Whether no field restricts.
    #[must_use]
    pub fn is_unrestricted(&self) -> bool {
        let Self {
            clients,
            resources,
            services,
            max_priority,
            max_capacity,
            max_clients,
        } = self;
        let has_globs = clients.is_some() || resources.is_some() || services.is_some();
        let has_bounds = max_priority.is_some() || max_capacity.is_some() || max_clients.is_some();
        !has_globs && !has_bounds
    }

    /// Whether the client or node is allowed.
    #[must_use]
    pub fn allows_client(&self, name: &str) -> bool {
        matches(self.clients.as_ref(), name)
    }

    /// Whether the resource is allowed.
    #[must_use]
    pub fn allows_resource(&self, id: &str) -> bool {
        matches(self.resources.as_ref(), id)
    }

    /// Whether the service is allowed.
    #[must_use]
    pub fn allows_service(&self, name: &str) -> bool {
        matches(self.services.as_ref(), name)
    }

    /// Whether the priority is allowed.
    #[must_use]
    pub fn allows_priority(&self, priority: i32) -> bool {
        self.max_priority.is_none_or(|max| priority <= max)
    }

    /// The fields of a template that give a resource more than the token may set, and the bound.
    #[must_use]
    pub fn above_max_capacity(&self, template: &Template) -> Vec<FieldError> {
        let Some(MaxCapacity(max)) = self.max_capacity else {
            return Vec::new();
        };
        let (period, unit) = match template.unit() {
            Unit::Rate => (template.per().get(), " per second"),
            Unit::Gauge => (1.0, ""),
        };
        let limit = format!("{max}{unit}, the `max_capacity` of the token");
        let exceeds = |amount: Capacity| amount.get() / period > max.get();
        let is_safe_above = match template.safe_capacity() {
            Some(SafeCapacity::Unlimited) => true,
            Some(SafeCapacity::AtMost(amount)) => exceeds(amount),
            None => false,
        };
        let algorithm = template.algorithm();
        let kind = algorithm.kind;
        let is_unshared = matches!(kind, AlgorithmKind::NoAlgorithm | AlgorithmKind::Static);
        [
            exceeds(template.capacity())
                .then(|| FieldError::new("/capacity", format!("must be at most {limit}"))),
            is_safe_above
                .then(|| FieldError::new("/safe_capacity", format!("must be at most {limit}"))),
            is_unshared.then(|| {
                let detail = format!(
                    "must be an algorithm that shares the capacity, so that all holders have at \
                     most {limit}"
                );
                FieldError::new("/algorithm/kind", detail)
            }),
            // Between shorter leases each holder uses the safe capacity.
            (algorithm.lease_length.get() < SHORTEST_LEASE).then(|| {
                let detail = format!("must be at least {SHORTEST_LEASE} seconds for this token");
                FieldError::new("/algorithm/lease_length", detail)
            }),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Whether resources of a template that was deleted may now get more than the token may set.
    #[must_use]
    pub fn frees_by_deletion(&self, deleted: &Glob, left: &[Arc<Template>]) -> bool {
        if self.max_capacity.is_none() {
            return false;
        }
        for template in left {
            let glob = &template.identifier_glob;
            let covers = glob.is_superset_of(deleted);
            let may_apply = covers
                || !deleted.is_literal()
                    && glob.may_match_prefix(&deleted.prefix())
                    && deleted.may_match_prefix(&glob.prefix());
            if may_apply && !self.above_max_capacity(template).is_empty() {
                return true;
            }
            if covers {
                return false;
            }
        }
        // No template, no limit.
        true
    }

    /// Whether the token may see and change the template of this glob: all of its resources are
    /// allowed.
    ///
    /// A token with other restrictions only may not. The text of the glob must be allowed as well,
    /// since [`lookup`](crate::Document::lookup) compares it with identifiers: `\a` is the template
    /// of the resources `a` and `\a`.
    #[must_use]
    pub fn covers_template(&self, identifier_glob: &Glob) -> bool {
        self.covers(self.resources.as_ref(), identifier_glob)
            && self.allows_resource(identifier_glob.as_str())
    }

    /// Whether the token may see the rule: all of its services are allowed. A token with other
    /// restrictions only may not.
    #[must_use]
    pub fn covers_services_of(&self, rule: &Rule) -> bool {
        self.covers(self.services.as_ref(), &rule.services)
    }

    /// Whether all resources that the rule may use are allowed. Services lease these with their own
    /// tokens, so the author of the rule must be allowed to use them.
    #[must_use]
    pub fn covers_resources_of(&self, rule: &Rule) -> bool {
        self.resources
            .as_ref()
            .is_none_or(|allowed| rule.uses_only(allowed))
    }

    fn covers(&self, allowed: Option<&GlobSet>, glob: &Glob) -> bool {
        match allowed {
            Some(globs) => globs.covers(glob),
            None => self.is_unrestricted(),
        }
    }
}

fn matches(allowed: Option<&GlobSet>, text: &str) -> bool {
    allowed.is_none_or(|globs| globs.matches(text))
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
    fn unrestricted_token_may_do_everything() {
        let free = Restrictions::default();
        assert!(free.is_unrestricted());
        assert!(free.allows_client("a") && free.allows_resource("b") && free.allows_service("c"));
        assert!(free.allows_priority(i32::MAX));
        assert!(free.covers_template(&Glob::new("*").unwrap()));
        let all = rule("*", "{host}");
        assert!(free.covers_services_of(&all) && free.covers_resources_of(&all));
    }

    #[test]
    fn restricted_token_covers_only_what_it_names() {
        let tenant = Restrictions {
            resources: globs(&["tenant/a", "tenant/a/*"]),
            ..Restrictions::default()
        };
        assert!(tenant.allows_resource("tenant/a/db") && !tenant.allows_resource("tenant/b"));
        assert!(tenant.covers_template(&Glob::new("tenant/a/?").unwrap()));
        assert!(!tenant.covers_template(&Glob::new("tenant/*").unwrap()));
        // The pattern is allowed, but not the resource of this name.
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
    fn rule_is_covered_for_every_placeholder_value() {
        let restrictions = Restrictions {
            resources: globs(&["a/*", r"b\*c"]),
            ..Restrictions::default()
        };
        for (resource, within) in [
            ("a/api", true),
            ("a/{header:x-user}", true),
            ("a/{method}/{route}", true),
            ("a{header:x-user}", false),
            ("{header:x-user}", false),
            ("{header:x-user}/a/", false),
            ("c/api", false),
            ("bbc", false),
            // Brackets in a key template are literals.
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
        #[test]
        fn tenants_with_disjoint_prefixes_share_nothing(
            a in "[a-z]{1,4}", b in "[a-z]{1,4}", id in "[a-z*?/]{0,6}", priority in any::<i32>()
        ) {
            prop_assume!(a != b);
            let of = |name: &str| {
                let all = globs(&[&format!("{name}/*")]);
                Restrictions { clients: all.clone(), resources: all.clone(), services: all, max_priority: Some(priority), max_capacity: None, max_clients: None }
            };
            let (of_a, of_b) = (of(&a), of(&b));
            let id = format!("{b}/{id}");
            prop_assert!(of_b.allows_client(&id) && of_b.allows_resource(&id) && of_b.allows_service(&id));
            prop_assert!(!of_a.allows_client(&id) && !of_a.allows_resource(&id) && !of_a.allows_service(&id));
            let glob = Glob::new(&id).unwrap();
            prop_assert!(of_b.covers_template(&glob) && !of_a.covers_template(&glob));
            // A resource has no wildcards.
            let rule = rule(&id, &id.replace(['*', '?'], "x"));
            prop_assert!(of_b.covers_services_of(&rule) && of_b.covers_resources_of(&rule));
            prop_assert!(!of_a.covers_services_of(&rule) && !of_a.covers_resources_of(&rule));
        }
    }
}
