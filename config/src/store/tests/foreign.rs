//! What lies where a store should, and is none.

use super::*;

#[test]
fn what_is_no_store_is_refused_and_left_as_it_is() {
    let home = Home::new();
    let refused = |why: &str| {
        let before = home.files();
        let error = Store::open(&home.path, &document(1), 0).unwrap_err();
        assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(home.files(), before);
    };
    for text in ["resources: []\n", "{}"] {
        fs::write(&home.path, text).unwrap();
        refused("file:PATH");
        assert_eq!(fs::read_to_string(&home.path).unwrap(), text);
        fs::remove_file(&home.path).unwrap();
    }
    fs::create_dir(&home.path).unwrap();
    refused("folder");
    fs::remove_dir(&home.path).unwrap();
    for marked in [0, 7] {
        home.sql("CREATE TABLE users (name TEXT)");
        home.sql(&format!("PRAGMA application_id = {marked}"));
        let bytes = fs::read(&home.path).unwrap();
        refused("another program");
        assert_eq!(fs::read(&home.path).unwrap(), bytes);
        fs::remove_file(&home.path).unwrap();
    }
}

#[test]
fn a_store_is_known_by_itself_also_when_other_tools_have_copied_it() {
    let home = Home::with_three_changes();
    for marks in ["", "PRAGMA application_id = 0; PRAGMA user_version = 0"] {
        home.sql(marks);
        let alone = TempDir::new().unwrap();
        let path = alone.path().join("restored.db");
        fs::copy(&home.path, &path).unwrap();
        let opened = Store::open(&path, &document(1), 0).unwrap();
        assert_eq!(
            (capacity(&opened.document), opened.problems.len()),
            (3.0, 0)
        );
    }
}
