//! Personal access tokens: made, used, listed, expired, revoked.

use crate::support::{Account, code, connected};
use iggy::prelude::*;
use std::time::Duration;

fn expiry(span: Duration) -> PersonalAccessTokenExpiry {
    IggyExpiry::ExpireDuration(IggyDuration::new(span))
}

const HOUR: Duration = Duration::from_secs(3_600);

/// A connection of the official client that does not connect again by itself.
async fn with_token(account: &Account, token: &str) -> Result<IggyClient, IggyError> {
    let client = connected(account.address()).await;
    client.login_with_personal_access_token(token).await?;
    Ok(client)
}

#[tokio::test]
async fn a_token_is_shown_once_and_logs_its_owner_in() {
    let account = Account::new(None).await;
    let client = account.login().await;
    let made = client.create_personal_access_token("laptop", expiry(HOUR)).await.expect("made");
    assert!(!made.token.is_empty());
    let robot = connected(account.address()).await;
    let identity =
        robot.login_with_personal_access_token(&made.token).await.expect("it is as good as new");
    assert_eq!(Some(identity.user_id), client.get_me().await.expect("me").user_id);
    let listed = client.get_personal_access_tokens().await.expect("listed");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].name, "laptop");
    assert!(listed[0].expiry_at.is_some());
}

#[tokio::test]
async fn a_token_may_live_for_ever() {
    let account = Account::new(None).await;
    let client = account.login().await;
    let never = IggyExpiry::NeverExpire;
    let made = client.create_personal_access_token("for-ever", never).await.expect("made");
    let listed = client.get_personal_access_tokens().await.expect("listed");
    assert_eq!(listed[0].expiry_at, None);
    with_token(&account, &made.token).await.expect("it logs in");
}

#[tokio::test]
async fn a_taken_token_name_is_refused_and_another_user_may_have_the_same() {
    let (one, two) = (Account::new(None).await, Account::new(None).await);
    let (first, second) = (one.login().await, two.login().await);
    first.create_personal_access_token("same", expiry(HOUR)).await.expect("made");
    let again = first.create_personal_access_token("same", expiry(HOUR)).await;
    assert_eq!(code(again), 51);
    second.create_personal_access_token("same", expiry(HOUR)).await.expect("names are per user");
    assert_eq!(second.get_personal_access_tokens().await.expect("listed").len(), 1);
    first.delete_personal_access_token("same").await.expect("deleted");
    assert_eq!(second.get_personal_access_tokens().await.expect("listed").len(), 1);
}

#[tokio::test]
async fn token_names_have_3_to_30_bytes() {
    let account = Account::new(None).await;
    let client = account.login().await;
    for bad in ["ab", &"x".repeat(31)] {
        assert_eq!(code(client.create_personal_access_token(bad, expiry(HOUR)).await), 50);
    }
    for good in ["abc", &"x".repeat(30)] {
        client.create_personal_access_token(good, expiry(HOUR)).await.expect("at the limit");
    }
}

#[tokio::test]
async fn a_token_lifetime_of_nought_means_for_ever() {
    let account = Account::new(None).await;
    let client = account.login().await;
    let made = client.create_personal_access_token("nought", expiry(Duration::ZERO)).await;
    let listed = client.get_personal_access_tokens().await.expect("listed");
    assert_eq!((listed.len(), listed[0].expiry_at), (1, None));
    with_token(&account, &made.expect("made").token).await.expect("it logs in");
}

#[tokio::test]
async fn an_unknown_token_is_refused_at_login_and_at_deletion() {
    let account = Account::new(None).await;
    let client = account.login().await;
    assert_eq!(code(client.delete_personal_access_token("unknown").await), 20);
    let guess = "A".repeat(68);
    assert_eq!(with_token(&account, &guess).await.map(drop).map_err(|e| e.as_code()), Err(53));
}

#[tokio::test]
async fn a_revoked_token_logs_nobody_in_and_its_open_connection_is_refused() {
    let account = Account::new(Some(Permissions::root())).await;
    let client = account.login().await;
    let made = client.create_personal_access_token("laptop", expiry(HOUR)).await.expect("made");
    let robot = with_token(&account, &made.token).await.expect("it logs in");
    robot.get_streams().await.expect("it has its owner's rights");
    client.delete_personal_access_token("laptop").await.expect("revoked");
    assert!(robot.get_streams().await.is_err(), "refused or closed");
    let late = with_token(&account, &made.token).await.map(drop);
    assert_eq!(late.map_err(|error| error.as_code()), Err(53));
}

#[tokio::test]
async fn an_expired_token_stops_in_the_middle_of_its_use() {
    let account = Account::new(Some(Permissions::root())).await;
    let client = account.login().await;
    let brief = expiry(Duration::from_millis(1_500));
    let made = client.create_personal_access_token("brief", brief).await.expect("made");
    let robot = with_token(&account, &made.token).await.expect("it logs in");
    robot.get_streams().await.expect("not yet");
    tokio::time::sleep(Duration::from_millis(1_700)).await;
    assert!(robot.get_streams().await.is_err(), "refused or closed");
    let late = with_token(&account, &made.token).await.map(drop);
    assert_eq!(late.map_err(|error| error.as_code()), Err(53));
}

#[tokio::test]
async fn a_token_has_the_rights_of_its_owner_at_the_time_of_the_request() {
    let account = Account::new(Some(Permissions::root())).await;
    let client = account.login().await;
    let made = client.create_personal_access_token("laptop", expiry(HOUR)).await.expect("made");
    let robot = with_token(&account, &made.token).await.expect("it logs in");
    robot.get_streams().await.expect("as its owner");
    account
        .owner
        .update_permissions(&crate::support::name(&account.name), None)
        .await
        .expect("taken away");
    assert_eq!(code(robot.get_streams().await), 41);
}

#[tokio::test]
async fn a_hundred_tokens_are_allowed_and_one_more_is_not() {
    let account = Account::new(None).await;
    let client = account.login().await;
    for index in 0..100 {
        let title = format!("token-{index}");
        client.create_personal_access_token(&title, expiry(HOUR)).await.expect("below the limit");
    }
    assert_eq!(code(client.create_personal_access_token("one-more", expiry(HOUR)).await), 52);
    // The limit is looked at before the name.
    assert_eq!(code(client.create_personal_access_token("token-1", expiry(HOUR)).await), 52);
    client.delete_personal_access_token("token-1").await.expect("deleted");
    client.create_personal_access_token("one-more", expiry(HOUR)).await.expect("room again");
}

#[tokio::test]
async fn tokens_vanish_with_their_user() {
    let account = Account::new(None).await;
    let client = account.login().await;
    let made = client.create_personal_access_token("laptop", expiry(HOUR)).await.expect("made");
    account.owner.delete_user(&crate::support::name(&account.name)).await.expect("deleted");
    let late = with_token(&account, &made.token).await.map(drop);
    assert_eq!(late.map_err(|error| error.as_code()), Err(53));
}
