#!/usr/bin/perl
# Your own checker, with only the modules that come with Perl: web pages that must show a text.
#
#     PACELINE_URL=http://127.0.0.1:8080 PACELINE_TOKEN=pl_… perl checker.pl
#
# It serves the queue "pages-perl", one run at a time, until SIGTERM or Ctrl-C; it finishes its run first.
use strict;
use warnings;
use HTTP::Tiny;
use JSON::PP;
use Time::HiRes qw(time);

my $url   = $ENV{PACELINE_URL}   or die "set PACELINE_URL\n";
my $token = $ENV{PACELINE_TOKEN} or die "set PACELINE_TOKEN\n";
my $json  = JSON::PP->new->utf8->canonical;
my $api   = HTTP::Tiny->new(timeout => 40, default_headers => { Authorization => "Bearer $token" });
my $web   = HTTP::Tiny->new(timeout => 10);

my $stopping = 0;
$SIG{TERM} = $SIG{INT} = sub { $stopping = 1 };

# Returns the status and the document of the answer; 599 means that there was none.
sub post {
    my ($path, $body) = @_;
    my $answer = $api->post("$url$path",
        { headers => { "Content-Type" => "application/json" }, content => $json->encode($body) });
    my $document = eval { $json->decode($answer->{content}) } || { detail => $answer->{content} };
    return ($answer->{status}, $document);
}

# Your work. Returns the status of the outcome and the detail to keep.
sub look {
    my ($check) = @_;
    my $page = $web->get($check->{url});
    return ("retry", { reason => "no answer: $page->{content}" }) if $page->{status} == 599;
    return ("failed", { reason => "'$check->{text}' is not on the page" })
        if index($page->{content}, $check->{text}) < 0;
    return ("ok", { status_code => $page->{status} + 0, bytes => length $page->{content} });
}

$| = 1;
print "ready\n";
until ($stopping) {
    # A short wait, because signals are handled only between two requests.
    my ($status, $claimed) =
        post("/v1/outgoing/claim", { queue => "pages-perl", max => 1, lease => "60s", wait => "1s" });
    if ($status != 200) {
        die "claim: $status $claimed->{detail}\n" if $status == 401 || $status == 403 || $status == 422;
        warn "claim: $status $claimed->{detail}\n";
        sleep 2;
        next;
    }
    for my $item (@{ $claimed->{items} }) {
        my $started = time;
        my ($outcome, $detail) = look($item->{check});
        $detail->{latency_ms} = int(1000 * (time - $started));
        # A run's id holds "/", "#" and "@": in a path they are percent-encoded.
        (my $run = $item->{run}) =~ s/([^A-Za-z0-9._~-])/sprintf "%%%02X", ord $1/ge;
        my %report = (lease => $item->{lease}, status => $outcome, detail => $detail);
        my ($answer, $said) = post("/v1/runs/$run/outcome", \%report);
        # No answer: the report may have counted. Sent again, it counts once; 409 means that it has, or that the lease is over.
        for (1 .. 5) {
            last if $answer < 500;
            sleep 1;
            ($answer, $said) = post("/v1/runs/$run/outcome", \%report);
        }
        warn "dropped $item->{run}: $answer $said->{detail}\n" if $answer != 200;
    }
}
