"""Accounts: users and groups, their roles and SSH keys, and what each may see and do.

    found = find_key(store, "aa:bb:...")                          whose key it is, by MD5 or SHA256
    verify_signature(found.key, "rsa-sha256", signature, data)    a signature of HTTP by that key
    identity = identity_of_user(store, found.user)                who that is now: roles, groups, owners
    RecordAccess(identity, machines, application_of).view(store)  a store as that person sees it

roles.py          roles, scopes, `Identity`: the one place that knows what somebody may see and do
visible_store.py  what somebody may do to a record, and a store as somebody sees it
machines.py       the records: `user`, `group`, `key`
directory.py      users, groups and roles are created and changed; the last admin
keys.py           keys are added, removed and found
ssh_keys.py       public keys are parsed, signatures verified
passwords.py      argon2

Tokens (`waybill.tokens`) and sign-ins (`waybill.sign_in`) stand for a user, or for nobody but themselves.
"""

from waybill.accounts.directory import (
    GroupView,
    UserView,
    act_keeping_an_admin,
    add_manager,
    add_member,
    change_group,
    change_user,
    check_password,
    close_group,
    create_group,
    create_user,
    delete_user,
    disable_user,
    enable_user,
    find_account,
    find_name,
    get_group,
    get_user,
    grant_role,
    identity_of_user,
    list_mail_addresses,
    may_manage,
    remove_manager,
    remove_member,
    set_password,
    to_group_view,
    to_user_view,
    withdraw_role,
)
from waybill.accounts.keys import FoundKey, KeyView, add_key, find_key, get_key, list_keys, remove_key, to_key_view
from waybill.accounts.machines import ACCOUNT_KINDS, GROUP, KEY, USER, GroupDocument, KeyDocument, UserDocument
from waybill.accounts.roles import OWN, ROLES, Grant, Identity, Role, is_role_sufficient, narrow_grants
from waybill.accounts.ssh_keys import SIGNATURE_ALGORITHMS, SshKey, parse_public_key, verify_signature
from waybill.accounts.visible_store import RecordAccess, VisibleStore, full_store_of

__all__ = [
    "ACCOUNT_KINDS",
    "GROUP",
    "KEY",
    "OWN",
    "ROLES",
    "SIGNATURE_ALGORITHMS",
    "USER",
    "FoundKey",
    "Grant",
    "GroupDocument",
    "GroupView",
    "Identity",
    "KeyDocument",
    "KeyView",
    "RecordAccess",
    "Role",
    "SshKey",
    "UserDocument",
    "UserView",
    "VisibleStore",
    "act_keeping_an_admin",
    "add_key",
    "add_manager",
    "add_member",
    "change_group",
    "change_user",
    "check_password",
    "close_group",
    "create_group",
    "create_user",
    "delete_user",
    "disable_user",
    "enable_user",
    "find_account",
    "find_key",
    "find_name",
    "full_store_of",
    "get_group",
    "get_key",
    "get_user",
    "grant_role",
    "identity_of_user",
    "is_role_sufficient",
    "list_keys",
    "list_mail_addresses",
    "may_manage",
    "narrow_grants",
    "parse_public_key",
    "remove_key",
    "remove_manager",
    "remove_member",
    "set_password",
    "to_group_view",
    "to_key_view",
    "to_user_view",
    "verify_signature",
    "withdraw_role",
]
