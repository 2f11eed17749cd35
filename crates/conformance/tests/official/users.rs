//! Users: create, read, change, disable, delete; who may log in.

use crate::support::{Account, code, connected, name, number, root, shared, unique};
use iggy::prelude::*;

fn no_options() -> UserUpdateOptions {
    UserUpdateOptions::default()
}

#[tokio::test]
async fn a_created_user_is_read_by_name_and_by_number_with_its_permissions() {
    let server = shared();
    let client = root(server.address()).await;
    let title = unique("user");
    let permissions = Permissions {
        global: GlobalPermissions { read_streams: true, ..GlobalPermissions::default() },
        streams: None,
    };
    let created = client
        .create_user(&title, "secret", UserStatus::Active, Some(permissions.clone()))
        .await
        .expect("the name is free");
    assert!(created.id > 0, "root has number 0");
    for identifier in [name(&title), number(created.id)] {
        let read = client.get_user(&identifier).await.expect("read").expect("it exists");
        assert_eq!((read.id, read.username.as_str()), (created.id, title.as_str()));
        assert_eq!(read.status, UserStatus::Active);
        assert_eq!(read.permissions, Some(permissions.clone()));
    }
}

#[tokio::test]
async fn users_are_listed_with_root_first() {
    let account = Account::new(None).await;
    let users = account.owner.get_users().await.expect("listed");
    assert_eq!(users[0].id, 0);
    assert!(users.windows(2).all(|pair| pair[0].id < pair[1].id), "in order of their numbers");
    assert!(users.iter().any(|user| user.username == account.name));
}

#[tokio::test]
async fn a_taken_user_name_is_refused() {
    let account = Account::new(None).await;
    let again = account.owner.create_user(&account.name, "secret", UserStatus::Active, None).await;
    assert_eq!(code(again), 46);
    let other = Account::new(None).await;
    let renamed = account
        .owner
        .update_user(&name(&other.name), Some(&account.name), None, &no_options())
        .await;
    assert_eq!(code(renamed), 46);
}

#[tokio::test]
async fn an_unknown_user_reads_as_none_and_cannot_be_changed() {
    let server = shared();
    let client = root(server.address()).await;
    let unknown = name("no-such-user");
    assert!(client.get_user(&unknown).await.expect("answered").is_none());
    assert!(client.get_user(&number(4_000_000_000)).await.expect("answered").is_none());
    assert_eq!(code(client.delete_user(&unknown).await), 20);
    assert_eq!(code(client.update_permissions(&unknown, None).await), 20);
    assert_eq!(code(client.change_password(&unknown, "secret", "other").await), 20);
    let renamed = client.update_user(&unknown, Some("new-name"), None, &no_options()).await;
    assert_eq!(code(renamed), 20);
}

#[tokio::test]
async fn a_user_is_renamed_and_logs_in_under_the_new_name_only() {
    let account = Account::new(None).await;
    let renamed = unique("renamed");
    account
        .owner
        .update_user(&name(&account.name), Some(&renamed), None, &no_options())
        .await
        .expect("the name is free");
    let client = connected(account.address()).await;
    client.login_user(&renamed, Account::PASSWORD).await.expect("the new name counts");
    assert!(account.owner.get_user(&name(&account.name)).await.expect("answered").is_none());
    // The official client logs its own session in again under the same name: nothing changes.
    account
        .owner
        .update_user(&name(&renamed), Some(&renamed), None, &no_options())
        .await
        .expect("its own name is no other's");
}

#[tokio::test]
async fn an_option_of_a_user_is_refused_by_its_key() {
    let account = Account::new(None).await;
    let mut options = no_options();
    options.raw.insert("shoe_size".to_owned(), "44".to_owned());
    let updated = account.owner.update_user(&name(&account.name), None, None, &options).await;
    assert_eq!(code(updated), 4041);
}

#[tokio::test]
async fn a_disabled_user_cannot_log_in_until_it_is_enabled_again() {
    let account = Account::new(None).await;
    let open = account.login().await;
    let user = name(&account.name);
    let set = |status| {
        let (owner, user) = (&account.owner, user.clone());
        async move { owner.update_user(&user, None, Some(status), &no_options()).await }
    };
    set(UserStatus::Inactive).await.expect("disabled");
    assert!(open.get_me().await.is_err(), "its open connection is denied at once");
    let client = connected(account.address()).await;
    assert_eq!(code(client.login_user(&account.name, Account::PASSWORD).await), 42);
    set(UserStatus::Active).await.expect("enabled");
    let client = connected(account.address()).await;
    client.login_user(&account.name, Account::PASSWORD).await.expect("enabled again");
}

#[tokio::test]
async fn a_changed_password_counts_at_once_and_the_old_one_never_again() {
    let account = Account::new(None).await;
    let client = account.login().await;
    let own = name(&account.name);
    assert_eq!(code(client.change_password(&own, "not-this", "new-secret").await), 42);
    client.get_me().await.expect("a rejected change leaves the connection usable");
    client.change_password(&own, Account::PASSWORD, "new-secret").await.expect("changed");
    client.get_me().await.expect("the open connection goes on");
    let old = connected(account.address()).await;
    assert_eq!(code(old.login_user(&account.name, Account::PASSWORD).await), 42);
    let new = connected(account.address()).await;
    new.login_user(&account.name, "new-secret").await.expect("the new password counts");
}

#[tokio::test]
async fn an_administrator_needs_the_present_password_of_the_user_as_well() {
    let account = Account::new(None).await;
    let user = name(&account.name);
    let wrong = account.owner.change_password(&user, "iggy-secret", "new-secret").await;
    assert_eq!(code(wrong), 42, "not the administrator's own password");
    // The official client remembers a password only for its own user.
    account
        .owner
        .change_password(&user, Account::PASSWORD, "new-secret")
        .await
        .expect("with the user's present password");
    let client = connected(account.address()).await;
    client.login_user(&account.name, "new-secret").await.expect("changed");
}

#[tokio::test]
async fn root_can_neither_be_deleted_nor_lose_its_permissions() {
    let server = shared();
    let client = root(server.address()).await;
    assert_eq!(code(client.delete_user(&number(0)).await), 48);
    assert_eq!(code(client.delete_user(&name("iggy")).await), 48);
    assert_eq!(code(client.update_permissions(&number(0), None).await), 49);
    client.get_users().await.expect("root still may");
}

#[tokio::test]
async fn a_deleted_user_is_gone_and_its_open_connection_ends() {
    let account = Account::new(Some(Permissions::root())).await;
    let open = account.login().await;
    account.owner.delete_user(&name(&account.name)).await.expect("deleted");
    assert!(open.get_streams().await.is_err(), "denied or closed");
    let client = connected(account.address()).await;
    assert_eq!(code(client.login_user(&account.name, Account::PASSWORD).await), 42);
    assert_eq!(code(account.owner.delete_user(&name(&account.name)).await), 20);
}

#[tokio::test]
async fn a_connection_of_a_deleted_user_never_acts_for_whoever_gets_its_number() {
    let account = Account::new(None).await;
    let open = account.login().await;
    account.owner.delete_user(&name(&account.name)).await.expect("deleted");
    let heir = unique("heir");
    let created = account
        .owner
        .create_user(&heir, "secret", UserStatus::Active, Some(Permissions::root()))
        .await
        .expect("created");
    // Whether or not the number was free for it, the old connection has no rights.
    assert!(created.id > 0);
    assert!(open.get_streams().await.is_err());
    assert!(open.get_users().await.is_err());
    account.owner.delete_user(&name(&heir)).await.expect("deleted");
}

#[tokio::test]
async fn a_user_reads_itself_and_nobody_else() {
    let account = Account::new(None).await;
    let client = account.login().await;
    let own = client.get_user(&name(&account.name)).await.expect("answered").expect("itself");
    assert_eq!(own.username, account.name);
    assert_eq!(code(client.get_user(&number(0)).await), 41);
    assert_eq!(code(client.get_users().await), 41);
}

#[tokio::test]
async fn a_user_whose_name_looks_like_a_number_is_reached_by_name_and_by_its_number() {
    let server = shared();
    let client = root(server.address()).await;
    let created = client
        .create_user("987654", "secret", UserStatus::Active, None)
        .await
        .expect("digits are a name");
    let by_name = client.get_user(&name("987654")).await.expect("answered").expect("by name");
    assert_eq!(by_name.id, created.id);
    assert!(client.get_user(&number(987_654)).await.expect("answered").is_none(), "no such id");
    client.delete_user(&number(created.id)).await.expect("by number");
}
