//! A page of a list, written while its elements are found: a thousand of them in one go would keep a thread from those who lease.

use serde::Serialize;

use super::{json::append, reply::Written};

/// How many elements are looked at each time the books are taken, and written each time a thread is.
pub(super) const PART: usize = 32;

/// How often the books are taken for one page: a token may be bound to few of very many.
pub(super) const PARTS: usize = 64;

/// A page as far as it is written.
#[derive(Debug)]
pub(super) struct Page {
    text: serde_json::Result<Vec<u8>>,
    len: usize,
}

impl Page {
    /// An empty page of the list with this name, which needs no escape.
    pub(super) fn new(list: &str) -> Self {
        Self {
            text: Ok(format!(r#"{{"{list}":["#).into_bytes()),
            len: 0,
        }
    }

    /// How many elements it has.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, element: &impl Serialize) {
        let Ok(text) = &mut self.text else { return };
        if self.len > 0 {
            text.push(b',');
        }
        self.len = self.len.saturating_add(1);
        if let Err(error) = append(text, element) {
            self.text = Err(error);
        }
    }

    /// Ends the page.
    pub(super) fn end(self, next_cursor: Option<&str>) -> Written {
        Written(self.text.and_then(|mut text| {
            text.push(b']');
            if let Some(cursor) = next_cursor {
                text.extend_from_slice(br#","next_cursor":"#);
                append(&mut text, cursor)?;
            }
            text.push(b'}');
            Ok(text)
        }))
    }
}

#[cfg(test)]
mod tests {
    use doorman_openapi::{LeasePage, ResourcePage};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_is_written_as_its_type_is() {
        let view = json!({
            "resource_id": "a\"b", "capacity": 5.5, "sum_has": 0.0, "sum_wants": 1.0, "clients": 2, "in_learning_mode": false,
            "template": null, "algorithm": "STATIC", "lease_length": 60.0, "refresh_interval": 5.0, "safe_capacity": -1.0
        });
        for (elements, cursor) in [(0, None), (1, Some("x")), (3, None), (2, Some("y"))] {
            let mut page = json!({"resources": vec![view.clone(); elements]});
            if let Some(cursor) = cursor {
                page["next_cursor"] = cursor.into();
            }
            let typed: ResourcePage = serde_json::from_value(page).unwrap();
            let mut page = Page::new("resources");
            for resource in &typed.resources {
                page.push(resource);
            }
            assert_eq!(page.len(), elements);
            let text = page.end(cursor).0.unwrap();
            assert_eq!(text, serde_json::to_vec(&typed).unwrap());
        }
        let typed = LeasePage {
            leases: Vec::new(),
            next_cursor: Some("x".to_owned()),
        };
        let text = Page::new("leases").end(Some("x")).0.unwrap();
        assert_eq!(text, serde_json::to_vec(&typed).unwrap());
    }
}
